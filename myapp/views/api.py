"""The blueprints: `api` under /api/v1, `site` beside it; importing this module registers every route."""

from __future__ import annotations

from myapp.views import (
    view_artifact,
    view_event,
    view_job,
    view_job_template,
    view_log,
    view_member,
    view_openapi,
    view_page,
    view_pipeline,
    view_project,
    view_run,
    view_schedule,
    view_security,
    view_system,
    view_token,
    view_user,
    view_version,
)
from myapp.views.blueprints import api, site

__all__ = [
    "api",
    "site",
    "view_artifact",
    "view_event",
    "view_job",
    "view_job_template",
    "view_log",
    "view_member",
    "view_openapi",
    "view_page",
    "view_pipeline",
    "view_project",
    "view_run",
    "view_schedule",
    "view_security",
    "view_system",
    "view_token",
    "view_user",
    "view_version",
]
