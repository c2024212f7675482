"""The Flask application: our API and pages, Flask-AppBuilder's pages for administrators, and what guards them all."""

from __future__ import annotations

import mimetypes
from datetime import timedelta
from pathlib import Path
from typing import Any

from flask import Flask
from flask_appbuilder import AppBuilder
from flask_appbuilder.const import AUTH_DB
from flask_appbuilder.models.sqla.base import SQLA
from redis import Redis
from sqlalchemy import event
from sqlalchemy.engine import make_url
from werkzeug.middleware.proxy_fix import ProxyFix
from werkzeug.routing import BaseConverter

from myapp.config import Settings
from myapp.persistence.database import Database
from myapp.security.manager import SecurityManager, check_password_strength
from myapp.security.secret import load_secret_key
from myapp.security.throttle import LoginThrottle, Rate
from myapp.security.tokens import AccessTokens
from myapp.services.context import Context
from myapp.views import access, errors, headers, page
from myapp.views.body import MAX_BODY
from myapp.views.streams import Streams
from myapp.views.web import Web

_ROOT = Path(__file__).resolve().parent.parent
_REDIS_TIMEOUT_S = 0.5


class IdConverter(BaseConverter):
    """A row's id: 1 to 2**63-1 without leading zeros; anything else is an address that does not exist."""

    regex = r"[1-9][0-9]{0,17}"

    def to_python(self, value: str) -> int:
        return int(value)


class WordConverter(BaseConverter):
    """A name, key or slug: nothing that means something to a file system or a database."""

    regex = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"


class NumberConverter(BaseConverter):
    """A count from 0 that fits 31 bits: a version, an attempt."""

    regex = r"(?:0|[1-9][0-9]{0,8})"

    def to_python(self, value: str) -> int:
        return int(value)


class UserConverter(BaseConverter):
    """A user name or e-mail address."""

    regex = r"[^/\x00-\x1f\x7f]{1,128}"


def build(settings: Settings, database: Database, context: Context) -> Flask:
    """Everything but the schema: `cube db upgrade` brings that up to date, never a web process."""
    secret = load_secret_key(settings.root, settings.secret_key.get_secret_value())
    app = Flask("cube", template_folder=str(_ROOT / "templates"), static_folder=str(_ROOT / "static"))
    app.config.update(_configuration(settings, secret))
    app.json.sort_keys = False  # type: ignore[attr-defined]
    app.url_map.strict_slashes = False
    app.url_map.merge_slashes = False
    app.url_map.converters.update(id=IdConverter, number=NumberConverter, user=UserConverter, word=WordConverter)
    app.extensions["cube"] = _web(settings, database, context, secret)
    if settings.public_url:
        app.wsgi_app = ProxyFix(app.wsgi_app, x_for=1, x_proto=1, x_host=1)  # type: ignore[method-assign]
    _add_flask_appbuilder(app)
    access.install(app)
    errors.install(app)
    headers.install(app)
    page.install(app)
    _add_routes(app)
    return app


def _web(settings: Settings, database: Database, context: Context, secret: str) -> Web:
    redis = Redis.from_url(
        settings.redis, socket_timeout=_REDIS_TIMEOUT_S, socket_connect_timeout=_REDIS_TIMEOUT_S, max_connections=64
    )
    return Web(
        settings=settings,
        database=database,
        context=context,
        redis=redis,
        access_tokens=AccessTokens(secret, settings.session_hours * 3600),
        throttle=LoginThrottle(redis, Rate.parse(settings.login_rate)),
        streams=Streams(settings.redis, settings.web_threads * 2 // 3),
    )


def _configuration(settings: Settings, secret: str) -> dict[str, Any]:
    https = settings.secure_cookies or settings.public_url.startswith("https://")
    return {
        "SECRET_KEY": secret,
        "MAX_CONTENT_LENGTH": MAX_BODY,
        "MAX_FORM_MEMORY_SIZE": 256 * 1024,
        "MAX_FORM_PARTS": 200,
        "SEND_FILE_MAX_AGE_DEFAULT": 3600,
        "SESSION_COOKIE_NAME": "cube_session",
        "SESSION_COOKIE_HTTPONLY": True,
        "SESSION_COOKIE_SAMESITE": "Lax",
        "SESSION_COOKIE_SECURE": https,
        "SESSION_REFRESH_EACH_REQUEST": False,
        "SESSION_PROTECTION": None,
        "PERMANENT_SESSION_LIFETIME": timedelta(hours=settings.session_hours),
        "SQLALCHEMY_DATABASE_URI": settings.database,
        "SQLALCHEMY_ENGINE_OPTIONS": _engine_options(settings.database),
        "AUTH_TYPE": AUTH_DB,
        "AUTH_USER_REGISTRATION": False,
        "AUTH_RATE_LIMITED": False,  # ours counts in Redis, on the form and the API alike
        "APP_NAME": "Cube Studio",
        "FAB_CREATE_DB": False,
        "FAB_UPDATE_PERMS": False,
        "FAB_ADD_SECURITY_API": False,
        "FAB_ADD_OPENAPI_VIEWS": False,
        "FAB_ADD_MENU_API": False,
        "FAB_ADD_SECURITY_PERMISSION_VIEW": False,
        "FAB_ADD_SECURITY_VIEW_MENU_VIEW": False,
        "FAB_ADD_SECURITY_PERMISSION_VIEWS_VIEW": False,
        "FAB_PASSWORD_COMPLEXITY_ENABLED": True,
        "FAB_PASSWORD_COMPLEXITY_VALIDATOR": check_password_strength,
        "FAB_SECURITY_SIGNALS_ENABLED": False,
    }


def _engine_options(url: str) -> dict[str, Any]:
    """Flask-AppBuilder's pages have their own small pool. On SQLite pysqlite begins transactions at the first write, so
    that none is ever upgraded from a read."""
    if make_url(url).get_backend_name() == "sqlite":
        return {"pool_size": 2, "max_overflow": 8, "connect_args": {"timeout": 60, "check_same_thread": False}}
    return {"pool_size": 2, "max_overflow": 8, "pool_pre_ping": True, "pool_recycle": 1800}


def _add_flask_appbuilder(app: Flask) -> None:
    from myapp.views.view_page import HomeView, SignInView

    SecurityManager.authdbview = SignInView
    database = SQLA(app)
    with app.app_context():
        if database.engine.dialect.name == "sqlite":
            event.listen(database.engine, "connect", _configure_sqlite)
        views = {"indexview": HomeView, "security_manager_class": SecurityManager}
        AppBuilder(app, database.session, base_template="cube/fab.html", **views)


def _configure_sqlite(connection: Any, record: Any) -> None:
    cursor = connection.cursor()
    for pragma in ("busy_timeout=60000", "foreign_keys=ON", "synchronous=NORMAL"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _add_routes(app: Flask) -> None:
    from myapp.views.api import api, site

    mimetypes.add_type("text/javascript", ".js")
    app.register_blueprint(api)
    app.register_blueprint(site)
