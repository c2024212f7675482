"""What the request handlers of one process share: `web()` inside a request."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from flask import current_app

from myapp.config import Settings
from myapp.persistence.database import Database
from myapp.security.throttle import LoginThrottle
from myapp.security.tokens import AccessTokens
from myapp.services.context import Context

if TYPE_CHECKING:
    from redis import Redis

    from myapp.views.streams import Streams


@dataclass(frozen=True)
class Web:
    """`redis` answers within half a second or raises; None never."""

    settings: Settings
    database: Database
    context: Context
    redis: Redis
    access_tokens: AccessTokens
    throttle: LoginThrottle
    streams: Streams
    extra: dict[str, Any] = field(default_factory=dict)


def web() -> Web:
    return cast(Web, current_app.extensions["cube"])
