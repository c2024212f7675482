"""The Celery application: doorbells only. A message names a row to look at; losing or doubling one changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import structlog
from celery import Celery
from celery.signals import worker_ready
from kombu.entity import Queue
from sqlalchemy.exc import DBAPIError

from myapp.controllers import work
from myapp.controllers.engine import Engine

log = structlog.get_logger(__name__)
SWEEP_EVERY_S = 15.0
SCHEDULES_EVERY_S = 5.0


def broker_url(redis_url: str) -> str:
    """Kombu's spelling of a Redis URL: a unix socket is `redis+socket://`."""
    return redis_url.replace("unix://", "redis+socket://", 1) if redis_url.startswith("unix://") else redis_url


def make_app(redis_url: str, *, answer_s: float = 10.0) -> Celery:
    """An application that can ring. Nothing here waits for the end of a task.

    `answer_s`: how long a Redis that holds the connection may take to answer, before the call fails.
    """
    app = Celery("cube", set_as_current=False)
    app.conf.update(
        broker_url=broker_url(redis_url),
        result_backend=None,
        task_ignore_result=True,
        task_store_errors_even_if_ignored=False,
        task_queues=[Queue("cube", no_ack=True)],  # a lost ring is only late: the outbox and the sweep are the net
        task_default_queue="cube",
        task_acks_late=False,
        task_serializer="json",
        accept_content=["json"],
        worker_prefetch_multiplier=4,
        worker_hijack_root_logger=False,
        worker_send_task_events=False,
        worker_enable_remote_control=False,
        worker_disable_rate_limits=True,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        task_send_sent_event=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_pool_limit=8,
        broker_transport_options={
            "unacked_restore_throttle": 1,
            "visibility_timeout": 120,
            "socket_timeout": answer_s,
            "socket_connect_timeout": 2,
            "max_retries": 0,
        },
        enable_utc=True,
        timezone="UTC",
        beat_schedule={
            "sweep": {"task": "cube.sweep", "schedule": SWEEP_EVERY_S, "options": {"expires": SWEEP_EVERY_S}},
            "schedules": {
                "task": "cube.schedules",
                "schedule": SCHEDULES_EVERY_S,
                "options": {"expires": SCHEDULES_EVERY_S},
            },
        },
    )
    return app


def create_celery(engine: Engine, redis_url: str) -> Celery:
    """The application of a worker: its tasks look at rows with this engine."""
    app = make_app(redis_url)

    def task(name: str, step: Callable[..., object]) -> None:
        def run(*args: str) -> None:
            try:
                step(engine, *args)
            except DBAPIError as error:
                log.warning("the database did not answer; the sweep looks again", task=name, error=str(error)[:300])
            except Exception:
                log.exception("a step failed; the sweep looks again", task=name, args=args)

        app.task(run, name=name, ignore_result=True, Request="myapp.tasks.doorbell:Doorbell")

    task("cube.run", work.run)
    task("cube.attempt", work.attempt)
    task("cube.admission", work.admission)
    task("cube.sweep", work.sweep)
    task("cube.schedules", work.schedules)

    @worker_ready.connect(weak=False)
    def _look_at_everything_alive(sender: object, **_: object) -> None:
        work.started(engine)

    return app
