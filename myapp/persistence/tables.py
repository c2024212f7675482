"""The tables as Core sees them, typed; and what is read of Flask-AppBuilder's without importing it."""

from __future__ import annotations

from typing import Any, cast

from sqlalchemy import Connection, Table, column, insert
from sqlalchemy import table as lightweight

from myapp import models

ALLOCATION = cast(Table, models.Allocation.__table__)
ATTEMPT = cast(Table, models.Attempt.__table__)
AUDIT = cast(Table, models.Audit.__table__)
FLAVOR = cast(Table, models.Flavor.__table__)
JOB_TEMPLATE = cast(Table, models.JobTemplate.__table__)
JOB_TEMPLATE_VERSION = cast(Table, models.JobTemplateVersion.__table__)
LOG_CHUNK = cast(Table, models.LogChunk.__table__)
METRIC = cast(Table, models.Metric.__table__)
OUTBOX = cast(Table, models.Outbox.__table__)
OUTPUT = cast(Table, models.Output.__table__)
PIPELINE = cast(Table, models.Pipeline.__table__)
PIPELINE_VERSION = cast(Table, models.PipelineVersion.__table__)
PROJECT = cast(Table, models.Project.__table__)
PROJECT_USER = cast(Table, models.ProjectUser.__table__)
RUN = cast(Table, models.Run.__table__)
SCHEDULE = cast(Table, models.Schedule.__table__)
TASK = cast(Table, models.TaskRun.__table__)
TRANSITION = cast(Table, models.Transition.__table__)

USER = lightweight(
    "ab_user",
    column("id"),
    column("username"),
    column("first_name"),
    column("last_name"),
    column("email"),
    column("active"),
)


def insert_row(connection: Connection, table: Table, values: dict[str, Any]) -> int:
    """Insert one row; its new id."""
    key = connection.execute(insert(table), values).inserted_primary_key
    assert key is not None
    return int(key[0])
