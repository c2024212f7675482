"""The two blueprints that every route of ours belongs to."""

from __future__ import annotations

from flask import Blueprint

api = Blueprint("api", __name__, url_prefix="/api/v1")
site = Blueprint("site", __name__)
