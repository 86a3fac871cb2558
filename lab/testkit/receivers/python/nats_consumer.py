"""Consumes a JetStream stream, and writes one line for each message; POSTHASTE_WINDOW is the stream's duplicate window in seconds."""

import asyncio
import os

import effects
import nats
from nats.js.api import ConsumerConfig, StreamConfig

stream = os.environ["POSTHASTE_STREAM"]


async def main():
    connection = await nats.connect(os.environ["NATS_URL"], max_reconnect_attempts=-1, reconnect_time_wait=0.1)
    js = connection.jetstream()
    await js.add_stream(
        StreamConfig(name=stream, subjects=[f"{stream}.>"], duplicate_window=float(os.environ["POSTHASTE_WINDOW"]))
    )
    taking = await js.pull_subscribe(f"{stream}.>", durable="effects", config=ConsumerConfig(ack_wait=5))
    print("ready", flush=True)
    while True:
        try:
            messages = await taking.fetch(100, timeout=1)
        except (asyncio.TimeoutError, nats.errors.ConnectionClosedError, nats.js.errors.APIError):
            continue
        for message in messages:
            headers = message.headers or {}
            effects.record(
                id=headers.get("Nats-Msg-Id"),
                name=message.subject,
                headers=headers,
                sequence=message.metadata.sequence.stream,
                **effects.body(message.data),
            )
            await message.ack()


asyncio.run(main())
