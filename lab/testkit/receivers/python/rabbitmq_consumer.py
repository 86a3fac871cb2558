"""Consumes the queues that are named, declaring none, and writes one line for each message."""

import os
import time

import effects
import kombu

queues = os.environ["POSTHASTE_QUEUES"].split(",")


def take(message):
    properties = message.properties
    effects.record(
        id=properties.get("message_id"),
        name=properties.get("type") or message.delivery_info["routing_key"],
        queue=message.delivery_info["routing_key"],
        exchange=message.delivery_info["exchange"],
        headers=message.headers,
        properties={key: value for key, value in properties.items() if key != "application_headers"},
        content_type=message.content_type,
        redelivered=message.delivery_info["redelivered"],
        **effects.body(message.body if isinstance(message.body, bytes) else message.body.encode()),
    )
    message.ack()


while True:
    try:
        with kombu.Connection(os.environ["BROKER_URL"], heartbeat=10) as connection:
            declared = [kombu.Queue(name, no_declare=True) for name in queues]
            with kombu.Consumer(connection, declared, on_message=take, prefetch_count=100):
                print("ready", flush=True)
                while True:
                    connection.drain_events()
    except connection.connection_errors + connection.channel_errors as error:
        print("again:", error, flush=True)
        time.sleep(0.2)
