"""A customer and two jobs in one transaction, with SQLAlchemy 2: one job by the function, one by an insert into the view.

DATABASE_URL=postgres://… python enqueue.py NAME CARD
"""

import os
import sys
from datetime import datetime, timedelta, timezone

from sqlalchemy import BigInteger, Column, DateTime, MetaData, Table, Text
from sqlalchemy import create_engine, func, insert, make_url, select, type_coerce
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column


class Base(DeclarativeBase):
    pass


class Customer(Base):
    __tablename__ = "customer"
    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    name: Mapped[str]
    remind_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


# A metadata of its own: the application's migrations leave the view alone.
job = Table(
    "job",
    MetaData(schema="posthaste"),
    Column("id", BigInteger, primary_key=True),
    Column("name", Text),
    Column("queue", Text),
    Column("kwargs", JSONB),
    Column("scheduled_at", DateTime(timezone=True)),
)


def sign_up(engine, name, card):
    remind_at = datetime.now(timezone.utc) + timedelta(days=1)
    with Session(engine) as session, session.begin():
        customer = Customer(name=name, remind_at=remind_at)
        session.add(customer)
        session.flush()  # the customer's id is there from here on
        kwargs = type_coerce({"customer": customer.id, "to": name}, JSONB)
        welcome = session.scalar(select(func.posthaste.enqueue("mail.welcome", kwargs)))
        reminder = session.scalar(
            insert(job)
            .values(
                name="mail.reminder",
                kwargs={"customer": customer.id},
                queue="reminders",
                scheduled_at=remind_at,
            )
            .returning(job.c.id)
        )
        print(welcome, reminder, flush=True)
        charge(card)  # what raises takes the customer and both jobs back


def charge(card):
    if card == "declined":
        raise RuntimeError("the card was declined")


if __name__ == "__main__":
    url = make_url(os.environ["DATABASE_URL"]).set(drivername="postgresql+psycopg")
    sign_up(create_engine(url), *sys.argv[1:])
