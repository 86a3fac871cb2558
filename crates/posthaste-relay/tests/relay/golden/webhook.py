"""How the Standard Webhooks library signs: webhook.py CASE; without one it lists the cases."""

import json
import sys
from datetime import datetime, timezone
from importlib.metadata import version

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ID = "018f3c9e-7b1a-7c2d-9e3f-4a5b6c7d8e9f"
CASES = {
    "object": {"body": '{"to":"a@example.com","n":1}'},
    "empty": {"body": ""},
    "unicode": {"body": '["ü 日本 🚀"]'},
    "big integers": {"body": "[9007199254740993,18446744073709551616]"},
}
for case in CASES.values():
    case.update(id=ID, timestamp=1700000000, secret=SECRET)

if len(sys.argv) == 1:
    print(json.dumps(CASES))
    sys.exit()
from standardwebhooks import Webhook

one = CASES[sys.argv[1]]
at = datetime.fromtimestamp(one["timestamp"], timezone.utc)
signature = Webhook(one["secret"]).sign(one["id"], at, one["body"])
print(json.dumps({"webhook-id": one["id"], "webhook-timestamp": str(one["timestamp"]), "webhook-signature": signature}))
print("standardwebhooks", version("standardwebhooks"), file=sys.stderr)
