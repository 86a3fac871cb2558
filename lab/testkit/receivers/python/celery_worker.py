"""Runs tasks of any name, and writes one line for each: celery --app celery_worker worker"""

import os
import subprocess

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


# The effect, and in its transaction that the message was received: what has had its effect has none again.
ONCE = """
BEGIN;
SELECT posthaste.receive(:'id') AS is_first \\gset
\\if :is_first
  INSERT INTO effect (delivery_id) VALUES (:'id');
\\endif
COMMIT;
"""


def once(id):
    database = ["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", f"--set=id={id}", os.environ["DATABASE_URL"]]
    subprocess.run([os.environ["PSQL"], *database], input=ONCE, text=True, check=True)


def run(task, *args, **kwargs):
    request = task.request
    if "DATABASE_URL" in os.environ:
        once(request.id)
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
