"""Checks the signature of a request from `posthaste work --http` or a webhook route.

WEBHOOK_SECRET=whsec_… python verify.py WEBHOOK_ID WEBHOOK_TIMESTAMP WEBHOOK_SIGNATURE < BODY
"""

import base64
import hashlib
import hmac
import os
import sys
import time


def is_signed(secret, headers, body):
    """`body` is the raw body, as bytes, before a framework parses it."""
    timestamp = headers["webhook-timestamp"]
    if not timestamp.isdecimal() or abs(time.time() - int(timestamp)) > 300:
        return False  # an old request that somebody sends again
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{headers['webhook-id']}.{timestamp}.".encode() + body
    digest = hmac.new(key, signed, hashlib.sha256).digest()
    expected = b"v1," + base64.b64encode(digest)
    signatures = headers["webhook-signature"].encode().split(b" ")  # two while a secret is rotated
    return any(hmac.compare_digest(expected, signature) for signature in signatures)


if __name__ == "__main__":
    names = ["webhook-id", "webhook-timestamp", "webhook-signature"]
    headers = dict(zip(names, sys.argv[1:]))
    signed = is_signed(os.environ["WEBHOOK_SECRET"], headers, sys.stdin.buffer.read())
    print("signed" if signed else "refused")
