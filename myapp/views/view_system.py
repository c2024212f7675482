"""What watches the platform asks: is the process alive, is it ready, how much is going on."""

from __future__ import annotations

import logging
from typing import Any, Literal

from flask import Response
from redis.exceptions import RedisError
from sqlalchemy.exc import SQLAlchemyError

from myapp.domain.permissions import Permission
from myapp.services.read_health import oldest_bell, read_load
from myapp.views.blueprints import site
from myapp.views.http import Answer, Call, Raw, route
from myapp.views.schemas import Reply
from myapp.views.web import web

log = logging.getLogger(__name__)
_LATE_S = 60.0
_TEXT = "text/plain; version=0.0.4; charset=utf-8"


class Health(Reply):
    status: Literal["ok"]


class Ready(Reply):
    """`worker` is late when a doorbell has gone unanswered for a minute; that alone does not make the web unready."""

    status: Literal["ready", "unready"]
    database: Literal["ok", "away"]
    redis: Literal["ok", "away"]
    worker: Literal["ok", "late", "unknown"]


@route(site, "/health", permission=Permission.PUBLIC, tag="system", reply=Health)
def health(call: Call) -> Any:
    """Whether this process answers at all"""
    return {"status": "ok"}


@route(site, "/ready", permission=Permission.PUBLIC, tag="system", replies={200: Ready, 503: Ready})
def ready(call: Call) -> Any:
    """Whether this process can do its work: the database and Redis answer"""
    database, worker = "ok", "unknown"
    try:
        worker = "late" if oldest_bell(call.context) > _LATE_S else "ok"
    except (SQLAlchemyError, OSError) as error:
        log.warning("not ready: the database does not answer (%s)", type(error).__name__)
        database = "away"
    redis = "ok"
    try:
        web().redis.ping()
    except (RedisError, OSError) as error:
        log.warning("not ready: Redis does not answer (%s)", type(error).__name__)
        redis = "away"
    good = database == redis == "ok"
    body = {"status": "ready" if good else "unready", "database": database, "redis": redis, "worker": worker}
    return Answer(body, 200 if good else 503, {} if good else {"Retry-After": "5"})


@route(
    site,
    "/metrics",
    permission=Permission.METRICS_READ,
    tag="system",
    replies={200: Raw("text/plain", "Prometheus text format 0.0.4.")},
)
def metrics(call: Call) -> Any:
    """Numbers for Prometheus (administrators: give it an API token)"""
    load = read_load(call.context, call.actor)
    lines: list[str] = []

    def gauge(name: str, about: str, values: dict[str, float]) -> None:
        lines.extend((f"# HELP {name} {about}", f"# TYPE {name} gauge"))
        lines.extend(f"{name}{labels} {value:g}" for labels, value in values.items())

    for name, about, counts in (
        ("cube_runs", "Runs that have not ended, by phase.", load.runs),
        ("cube_tasks", "Tasks that have not ended, by phase.", load.tasks),
        ("cube_attempts", "Live attempts, by phase.", load.attempts),
    ):
        gauge(name, about, {f'{{phase="{phase}"}}': count for phase, count in counts.items()})
    gauge("cube_doorbells", "Doorbells not yet answered.", {"": load.bells})
    gauge("cube_doorbell_oldest_seconds", "Age of the oldest unanswered doorbell.", {"": load.oldest_bell})
    gauge(
        "cube_allocated",
        "Resources held by attempts.",
        {f'{{flavor="{_label(f)}",resource="{_label(r)}"}}': amount for (f, r), amount in load.allocated.items()},
    )
    gauge("cube_event_streams", "Event streams open in the process that answers.", {"": len(web().streams)})
    return Response("\n".join(lines) + "\n", content_type=_TEXT)


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
