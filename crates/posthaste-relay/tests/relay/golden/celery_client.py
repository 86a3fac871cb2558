"""What Celery's client sends: celery_client.py CASE; without one it lists the cases."""

import json
import os
import sys
from datetime import datetime, timezone

import celery
import celery.utils.nodenames

ID = "018f3c9e-7b1a-7c2d-9e3f-4a5b6c7d8e9f"
LATER = "2100-01-01T00:00:00+00:00"
CASES = {
    "immediate": {"name": "mail.send", "args": [1, "two", 3.5, None, True], "kwargs": {"to": "a@example.com"}, "queue": "mail"},
    "empty": {"name": "mail.send"},
    "unicode": {"name": "mail.send", "args": ["ü 日本 🚀", "<a href='x'>&\"\\/</a>", "\u2028\u0001\n\t\u007f"], "queue": "mail"},
    "big integers": {"name": "mail.send", "args": [9007199254740993, 18446744073709551616, 1.0e300], "queue": "mail"},
    "eta": {"name": "mail.send", "args": [1], "queue": "mail", "eta": LATER},
    "expires": {"name": "mail.send", "args": [1], "queue": "mail", "expires": LATER},
    "options": {"name": "mail.send", "args": [1], "queue": "mail", "priority": 3, "time_limit": 60, "soft_time_limit": 50, "retries": 2},
    "headers": {"name": "mail.send", "args": [1], "queue": "mail", "headers": {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}},
}

if len(sys.argv) == 1:
    print(json.dumps(CASES))
    sys.exit()
one = dict(CASES[sys.argv[1]])
for key in ("eta", "expires"):
    if key in one:
        one[key] = datetime.fromisoformat(one[key]).astimezone(timezone.utc)
# Nothing of the machine goes into the capture.
celery.utils.nodenames.gethostname = lambda: "host"
os.getpid = lambda: 1
app = celery.Celery(broker=os.environ["BROKER_URL"])
app.send_task(one.pop("name"), one.pop("args", None), one.pop("kwargs", None), task_id=ID, **one)
app.close()
print("celery", celery.__version__, file=sys.stderr)
