"""Oban for Python, which tells workers of each job by NOTIFY."""

import os
from contextlib import asynccontextmanager

from oban import Oban, worker as worker_of
from oban.schema import install
from psycopg_pool import AsyncConnectionPool

URL = os.environ["DATABASE_URL"]
started = None


@worker_of(queue="default")
class Noop:
    async def process(self, job):
        started(job.args["n"])


def connections(count):
    return AsyncConnectionPool(URL, min_size=count, max_size=count, open=False)


async def setup():
    async with connections(1) as pool:
        await install(pool)


class Producer:
    def __init__(self, oban):
        self.oban = oban

    async def one(self, number):
        await self.oban.enqueue(Noop.new({"n": number}))

    async def many(self, numbers):
        await self.oban.enqueue_many([Noop.new({"n": number}) for number in numbers])


@asynccontextmanager
async def producer(conns):
    async with connections(conns) as pool:
        yield Producer(Oban(pool=pool))


@asynccontextmanager
async def worker(call):
    global started
    started = call
    async with connections(8) as pool:
        oban = Oban(pool=pool, queues={"default": 100})
        await oban.start()
        try:
            yield
        finally:
            await oban.stop()
