"""Celery's delay() and apply_async() in the transaction of your data, with psycopg 3. A relay sends
the jobs to Celery; a Celery app gets the class by Celery(task_cls=...), mixed with celery.Task.

DATABASE_URL=postgres://… python delay.py NAME
"""

import os
import sys
from datetime import datetime, timedelta, timezone

import psycopg
from psycopg.types.json import Jsonb


class Enqueued:
    def delay(self, *args, **kwargs):
        return self.apply_async(args, kwargs)

    def apply_async(self, args=(), kwargs=None, *, countdown=None, eta=None, queue="celery"):
        if args and kwargs:
            raise TypeError("give positional or named arguments, not both")
        if countdown is not None:
            eta = datetime.now(timezone.utc) + timedelta(seconds=countdown)
        arguments = {"args": list(args)} if args else kwargs or {}
        enqueue = "SELECT posthaste.enqueue(%s, %s, queue => %s, scheduled_at => %s)"
        values = [self.name, Jsonb(arguments), queue, eta]
        return self.connection().execute(enqueue, values).fetchone()[0]


class Welcome(Enqueued):
    name = "shop.tasks.welcome"

    def __init__(self, connection):
        self.connection = lambda: connection


if __name__ == "__main__":
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        welcome = Welcome(connection)
        print(welcome.delay(sys.argv[1]), end=" ")
        print(welcome.apply_async(kwargs={"name": sys.argv[1]}, countdown=60))
