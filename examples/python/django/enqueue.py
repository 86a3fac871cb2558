"""A customer and two jobs in one transaction, with Django: one job by the function, one by a model over the view.

DATABASE_URL=postgres://… python enqueue.py NAME CARD
"""

import os
import sys
from datetime import timedelta

import django
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.json import Jsonb

# In a project this is settings.py.
url = conninfo_to_dict(os.environ["DATABASE_URL"])
database = {
    "ENGINE": "django.db.backends.postgresql",
    "NAME": url.get("dbname", ""),
    "USER": url.get("user", ""),
    "PASSWORD": url.get("password", ""),
    "HOST": url.get("host", ""),
    "PORT": url.get("port", ""),
}
settings.configure(DATABASES={"default": database}, USE_TZ=True)
django.setup()

from django.db import connection, models, transaction  # noqa: E402
from django.utils import timezone  # noqa: E402


class Customer(models.Model):
    id = models.BigAutoField(primary_key=True)
    name = models.TextField()
    remind_at = models.DateTimeField()

    class Meta:
        app_label = "shop"
        db_table = "customer"


class Job(models.Model):
    id = models.BigAutoField(primary_key=True)
    name = models.TextField()
    queue = models.TextField(null=True)
    kwargs = models.JSONField(default=dict)
    scheduled_at = models.DateTimeField(default=timezone.now)

    class Meta:
        app_label = "shop"
        db_table = '"posthaste"."job"'
        managed = False  # a view of posthaste's: migrate makes no table


def sign_up(name, card):
    with transaction.atomic():
        remind_at = timezone.now() + timedelta(days=1)
        customer = Customer.objects.create(name=name, remind_at=remind_at)
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT posthaste.enqueue(%s, %s)",
                ["mail.welcome", Jsonb({"customer": customer.id, "to": name})],
            )
            (welcome,) = cursor.fetchone()
        reminder = Job.objects.create(
            name="mail.reminder",
            kwargs={"customer": customer.id},
            queue="reminders",
            scheduled_at=remind_at,
        )
        print(welcome, reminder.id, flush=True)
        charge(card)  # what raises takes the customer and both jobs back


def charge(card):
    if card == "declined":
        raise RuntimeError("the card was declined")


if __name__ == "__main__":
    sign_up(*sys.argv[1:])
