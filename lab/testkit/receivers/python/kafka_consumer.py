"""Consumes a topic from its beginning, and writes one line for each record."""

import os

import effects
from confluent_kafka import Consumer

consumer = Consumer(
    {
        "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP"],
        "group.id": "effects",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        # The topic may come into being after its consumer.
        "allow.auto.create.topics": True,
        "topic.metadata.refresh.interval.ms": 500,
        "reconnect.backoff.max.ms": 500,
    }
)
consumer.subscribe([os.environ["POSTHASTE_TOPIC"]])
print("ready", flush=True)
while True:
    record = consumer.poll(1.0)
    if record is None:
        continue
    if record.error():
        print("again:", record.error(), flush=True)
        continue
    headers = {name: value.decode("utf-8", "replace") for name, value in record.headers() or []}
    effects.record(
        id=headers.get("id"),
        name=record.topic(),
        key=record.key(),
        headers=headers,
        partition=record.partition(),
        offset=record.offset(),
        **effects.body(record.value() or b""),
    )
    consumer.commit(record, asynchronous=False)
