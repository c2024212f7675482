"""The platform's parts, each in the foreground of a process of its own: forked by `cube up`, or alone (`cube web`)."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

from myapp.client import heartbeat
from myapp.config import Settings
from myapp.utils import process

_PRELOAD = (
    "celery.app.amqp",
    "celery.apps.worker",
    "celery.beat",
    "celery.concurrency.thread",
    "celery.worker.components",
    "celery.worker.consumer",
    "gunicorn.app.base",
    "gunicorn.workers.gthread",
    "kombu.transport.redis",
    "myapp.backends.local.interrupt",
    "myapp.composition",
    "myapp.tasks.celery_app",
    "myapp.tasks.doorbell",
    "myapp.views.app",
    "myapp.views.server",
)


def preload(settings: Settings) -> None:
    """Import and build what the parts share, once, before forking. Opens no connection, starts no thread."""
    for name in _PRELOAD:
        importlib.import_module(name)
    from sqlalchemy.orm import configure_mappers

    from myapp.catalog import load_catalog

    configure_mappers()
    load_catalog(settings.catalog)


def plain_log(settings: Settings) -> None:
    """One line an event. A traceback never shows the values of variables: they hold people's secrets."""
    import structlog

    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%Y-%m-%d %H:%M:%S", utc=False),
            structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(settings.log_level),
    )


def run_web(settings: Settings) -> int:
    from myapp.composition import create_platform
    from myapp.views.server import serve

    plain_log(settings)
    arbiter = os.getpid()
    os.register_at_fork(after_in_child=lambda: process.die_with_parent(arbiter))  # gunicorn's workers
    serve(create_platform(settings))
    return 0


def run_worker(settings: Settings) -> int:
    """Celery with threads. TERM: what it is answering is finished first (each answer is short), then it ends."""
    from celery.apps.worker import install_worker_term_handler
    from celery.platforms import SecurityWarning
    from celery.signals import worker_ready

    from myapp.composition import create_platform
    from myapp.tasks.celery_app import create_celery

    plain_log(settings)
    # It warns of root, because its pickle serializer would be dangerous; ours takes JSON only.
    warnings.filterwarnings("ignore", category=SecurityWarning)
    celery = create_celery(create_platform(settings, durable=False).engine, settings.redis)
    worker: Any = celery.Worker(
        pool="threads",
        concurrency=settings.worker_threads,
        optimization="fair",
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        task_events=False,
        loglevel={"debug": "INFO", "info": "ERROR"}.get(settings.log_level, "ERROR"),
        redirect_stdouts=False,
        quiet=True,
        hostname=f"worker@{settings.node}",
    )
    worker_ready.connect(lambda **about: install_worker_term_handler(worker, verbose=False), weak=False)
    worker.start()
    return int(worker.exitcode or 0)


def run_beat(settings: Settings) -> int:
    """Celery's beat with its schedule in memory: which runs are due, the database decides."""
    import celery.beat

    from myapp.tasks.celery_app import make_app

    service: Any = celery.beat.Service(make_app(settings.redis), scheduler_cls=celery.beat.Scheduler)

    def stop(signum: int, frame: object) -> None:
        service.stop()
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    service.start()
    return 0


def run_watch(settings: Settings) -> int:
    from myapp.composition import create_platform

    plain_log(settings)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda signum, frame: stop.set())
    signal.signal(signal.SIGINT, lambda signum, frame: stop.set())
    create_platform(settings, durable=False).watch(stop)
    return 0


PARTS: dict[str, Callable[[Settings], int]] = {
    "web": run_web,
    "worker": run_worker,
    "beat": run_beat,
    "watch": run_watch,
}


def run_alone(name: str, settings: Settings) -> int:
    """One part in this process, for containers and many machines; `cube alive NAME` sees its heart beat."""
    heartbeat.start(name)
    with contextlib.suppress(KeyboardInterrupt):
        return PARTS[name](settings)
    sys.stderr.write(f"cube {name}: stopped\n")
    return 0
