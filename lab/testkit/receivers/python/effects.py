"""One line for each effect, on the disk before the message is acknowledged."""

import base64
import json
import os

_file = os.open(os.environ["POSTHASTE_EFFECTS"], os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o644)


def record(**effect):
    # One write of one line in append mode: lines of several threads never mix.
    os.write(_file, (json.dumps(effect, default=_plain) + "\n").encode())
    os.fsync(_file)


def body(data):
    """A message's bytes, and what they say where they are JSON."""
    data = bytes(data)
    try:
        said = json.loads(data)
    except ValueError:
        said = None
    return {"args": said, "payload": base64.b64encode(data).decode()}


def _plain(value):
    return value.decode("utf-8", "replace") if isinstance(value, (bytes, bytearray)) else str(value)
