"""procrastinate, whose worker listens and deletes jobs that succeeded."""

import asyncio
import os
from contextlib import asynccontextmanager

from procrastinate import App, PsycopgConnector

URL = os.environ["DATABASE_URL"]
started = None


def application(conns):
    app = App(connector=PsycopgConnector(conninfo=URL, min_size=conns, max_size=conns))

    @app.task(name="noop")
    async def noop(n):
        started(n)

    return app, noop


async def setup():
    app, _ = application(1)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


class Producer:
    def __init__(self, task):
        self.task = task

    async def one(self, number):
        await self.task.defer_async(n=number)

    async def many(self, numbers):
        await self.task.batch_defer_async(*({"n": number} for number in numbers))


@asynccontextmanager
async def producer(conns):
    app, task = application(conns)
    async with app.open_async():
        yield Producer(task)


@asynccontextmanager
async def worker(call):
    global started
    started = call
    app, _ = application(8)
    async with app.open_async():
        running = asyncio.create_task(
            app.run_worker_async(
                concurrency=100, delete_jobs="successful", install_signal_handlers=False
            )
        )
        try:
            yield
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
