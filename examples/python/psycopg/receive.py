"""An effect that happens once for each delivery, with psycopg 3.

DATABASE_URL=postgres://… python receive.py DELIVERY_ID NAME CARD
"""

import os
import sys

import psycopg


def handle(connection, delivery_id, name, card):
    with connection.transaction():
        (is_first,) = connection.execute(
            "SELECT posthaste.receive(%s::uuid)", [delivery_id]
        ).fetchone()
        if is_first:
            connection.execute(
                "INSERT INTO customer (name, remind_at) VALUES (%s, now())", [name]
            )
            charge(card)  # what raises takes the receipt back: the next delivery is the first again
    return is_first


def charge(card):
    if card == "declined":
        raise RuntimeError("the card was declined")


if __name__ == "__main__":
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        print("first" if handle(connection, *sys.argv[1:]) else "again")
