"""A customer and two jobs in one transaction, with psycopg 3.

DATABASE_URL=postgres://… python enqueue.py NAME CARD
"""

import os
import sys
from datetime import datetime, timedelta, timezone

import psycopg
from psycopg.types.json import Jsonb


def sign_up(connection, name, card):
    remind_at = datetime.now(timezone.utc) + timedelta(days=1)
    with connection.transaction():
        (customer,) = connection.execute(
            "INSERT INTO customer (name, remind_at) VALUES (%s, %s) RETURNING id",
            [name, remind_at],
        ).fetchone()
        (welcome,) = connection.execute(
            "SELECT posthaste.enqueue(%s, %s)",
            ["mail.welcome", Jsonb({"customer": customer, "to": name})],
        ).fetchone()
        (reminder,) = connection.execute(
            "SELECT posthaste.enqueue(%s, %s, queue => %s, scheduled_at => %s)",
            ["mail.reminder", Jsonb({"customer": customer}), "reminders", remind_at],
        ).fetchone()
        print(welcome, reminder, flush=True)
        charge(card)  # what raises takes the customer and both jobs back


def charge(card):
    if card == "declined":
        raise RuntimeError("the card was declined")


if __name__ == "__main__":
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        sign_up(connection, *sys.argv[1:])
