"""pgqueuer on asyncpg, its fastest driver."""

import asyncio
import os
from contextlib import asynccontextmanager

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgPoolDriver
from pgqueuer.queries import Queries

URL = os.environ["DATABASE_URL"]


def connections(count):
    return asyncpg.create_pool(URL, min_size=count, max_size=count)


async def setup():
    async with connections(1) as pool:
        await Queries(AsyncpgPoolDriver(pool)).install()


class Producer:
    def __init__(self, pool):
        self.queries = Queries(AsyncpgPoolDriver(pool))

    async def one(self, number):
        await self.queries.enqueue("noop", str(number).encode())

    async def many(self, numbers):
        payloads = [str(number).encode() for number in numbers]
        count = len(payloads)
        await self.queries.enqueue(["noop"] * count, payloads, [0] * count)


@asynccontextmanager
async def producer(conns):
    async with connections(conns) as pool:
        yield Producer(pool)


@asynccontextmanager
async def worker(call):
    async with connections(8) as pool:
        queuer = PgQueuer.from_asyncpg_pool(pool)

        @queuer.entrypoint("noop")
        async def noop(job):
            call(int(job.payload))

        running = asyncio.create_task(queuer.run(batch_size=100))
        try:
            yield
        finally:
            queuer.shutdown.set()
            await running
