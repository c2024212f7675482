"""The API's own description."""

from __future__ import annotations

from typing import Any

from flask import current_app

from myapp.domain.permissions import Permission
from myapp.views.blueprints import api
from myapp.views.http import Call, route
from myapp.views.openapi import describe
from myapp.views.web import web


@route(api, "/_openapi", permission=Permission.PUBLIC, tag="system", hidden=True)
def get_openapi(call: Call) -> Any:
    """OpenAPI 3.1 of every route"""
    extra = web().extra
    if "openapi" not in extra:
        extra["openapi"] = describe(current_app.url_map, current_app.view_functions)
    return extra["openapi"]
