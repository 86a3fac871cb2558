"""pgmq by its SQL, on asyncpg; a loop reads batches when it is notified, and deletes them."""

import asyncio
import os
from contextlib import asynccontextmanager

import asyncpg
from pgmq import install_pgmq_from_sql
from pgmq.async_queue import PGMQueue

URL = os.environ["DATABASE_URL"]
QUEUE = "noop"
BATCH = 1_000
# Seconds until a message that was not deleted is read again.
TIMEOUT = 30


async def queue(pool):
    client = PGMQueue(pool=pool, init_extension=False)
    await client.init()
    return client


def connections(count):
    return asyncpg.create_pool(URL, min_size=count, max_size=count)


async def setup():
    install_pgmq_from_sql(dsn=URL)
    async with connections(1) as pool:
        client = await queue(pool)
        await client.create_queue(QUEUE)
        await client.enable_notify(QUEUE, throttle_interval_ms=0)


class Producer:
    def __init__(self, client):
        self.client = client

    async def one(self, number):
        await self.client.send(QUEUE, {"n": number})

    async def many(self, numbers):
        await self.client.send_batch(QUEUE, [{"n": number} for number in numbers])


@asynccontextmanager
async def producer(conns):
    async with connections(conns) as pool:
        yield Producer(await queue(pool))


@asynccontextmanager
async def worker(call):
    async with connections(4) as pool:
        client = await queue(pool)
        notified, is_ending = asyncio.Event(), False
        listener = await asyncpg.connect(URL)
        await listener.add_listener(f"pgmq.q_{QUEUE}.INSERT", lambda *_: notified.set())

        async def read():
            while not is_ending:
                notified.clear()
                messages = await client.read_batch(QUEUE, vt=TIMEOUT, batch_size=BATCH)
                for message in messages:
                    call(message.message["n"])
                if messages:
                    await client.delete_batch(QUEUE, [message.msg_id for message in messages])
                else:
                    try:
                        await asyncio.wait_for(notified.wait(), 1)
                    except TimeoutError:
                        pass

        reading = asyncio.create_task(read())
        try:
            yield
        finally:
            is_ending = True
            notified.set()
            await reading
            await listener.close()
