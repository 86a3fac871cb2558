"""awa by its Python SDK, whose queue storage and dispatch are those of the Rust library."""

import os
from contextlib import asynccontextmanager
from dataclasses import dataclass

from awa import AsyncClient, migrate

URL = os.environ["DATABASE_URL"]


@dataclass
class Noop:
    n: int


async def setup():
    await migrate(URL)
    client = AsyncClient(URL, max_connections=2)
    await client.install_queue_storage()
    await client.close()


class Producer:
    def __init__(self, client):
        self.client = client

    async def one(self, number):
        await self.client.insert(Noop(number), queue="default")

    async def many(self, numbers):
        jobs = [Noop(number) for number in numbers]
        await self.client.enqueue_many_copy(jobs, queue="default")


@asynccontextmanager
async def producer(conns):
    client = AsyncClient(URL, max_connections=conns)
    yield Producer(client)
    await client.close()


@asynccontextmanager
async def worker(call):
    client = AsyncClient(URL, max_connections=10)

    @client.task(Noop, queue="default")
    async def noop(job):
        call(job.args.n)

    await client.start([("default", 100)])
    try:
        yield
    finally:
        await client.shutdown(timeout_ms=10_000)
        await client.close()
