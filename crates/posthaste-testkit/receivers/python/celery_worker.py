"""Runs tasks of any name, and writes one line for each: celery --app celery_worker worker"""

import os

import celery
import effects
from celery.worker.consumer import Consumer


class AnyTask(dict):
    """What Celery does with a task by its name; a name that it has not seen is registered when it comes."""

    def __init__(self, consumer):
        super().__init__()
        self.consumer = consumer

    def __missing__(self, name):
        task = app.task(run, name=name, bind=True)
        task.__trace__ = celery.app.trace.build_tracer(name, task, app.loader, self.consumer.hostname, app=app)
        self[name] = task.start_strategy(app, self.consumer)
        return self[name]


class AnyTaskConsumer(Consumer):
    def Strategies(self):
        return AnyTask(self)


def run(task, *args, **kwargs):
    request = task.request
    effects.record(
        id=request.id,
        name=task.name,
        args=list(args),
        kwargs=kwargs,
        queue=request.delivery_info.get("routing_key"),
        headers=request.headers,
        root_id=request.root_id,
        eta=request.eta,
        retries=request.retries,
        redelivered=request.delivery_info.get("redelivered"),
    )


app = celery.Celery("posthaste", broker=os.environ["BROKER_URL"])
app.conf.update(
    worker_consumer="celery_worker:AnyTaskConsumer",
    task_acks_late=True,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_transport_options={"visibility_timeout": 3600, "polling_interval": 0.1},
    worker_hijack_root_logger=False,
    task_ignore_result=True,
)
