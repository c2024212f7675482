"""The engine's tables: projects, templates, pipelines, runs, history."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

TABLES = (
    "audit", "flavor", "outbox", "project", "transition", "job_template", "pipeline", "project_user",
    "job_template_version", "pipeline_version", "schedule", "run", "task_run", "attempt", "metric", "output",
    "allocation", "log_chunk",
)

Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
Json = sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")
Moment = sa.Double()
# A name is the same name only byte for byte, on every database.
TABLE = {"if_not_exists": True, "mysql_engine": "InnoDB", "mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin"}


def upgrade() -> None:
    op.create_table(
        "audit",
        sa.Column("id", Id, nullable=False),
        sa.Column("at", Moment, nullable=False),
        sa.Column("actor", sa.String(length=64), nullable=False),
        sa.Column("user_id", Id, nullable=False),
        sa.Column("project_id", Id),
        sa.Column("action", sa.String(length=64), nullable=False),
        sa.Column("target", sa.String(length=128), nullable=False),
        sa.Column("outcome", sa.String(length=32), nullable=False),
        sa.Column("address", sa.String(length=64), nullable=False),
        sa.Column("detail", Json),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
        **TABLE,
    )
    op.create_index("ix_audit_project_id_id", "audit", ["project_id", "id"], if_not_exists=True)
    op.create_table(
        "flavor",
        sa.Column("backend", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("resource", sa.String(length=64), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("note", sa.String(length=500), nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.PrimaryKeyConstraint("backend", "name", "resource", name="pk_flavor"),
        **TABLE,
    )
    op.create_table(
        "outbox",
        sa.Column("id", Id, nullable=False),
        sa.Column("topic", sa.String(length=32), nullable=False),
        sa.Column("key", sa.String(length=32), nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_outbox"),
        **TABLE,
    )
    op.create_index("ix_outbox_created_at", "outbox", ["created_at"], if_not_exists=True)
    op.create_index("ix_outbox_topic_key", "outbox", ["topic", "key"], if_not_exists=True)
    op.create_table(
        "project",
        sa.Column("id", Id, nullable=False),
        sa.Column("slug", sa.String(length=32), nullable=False),
        sa.Column("title", sa.String(length=200), nullable=False),
        sa.Column("description", sa.String(length=2000), nullable=False),
        sa.Column("namespace", sa.String(length=63), nullable=False),
        sa.Column("backend", sa.String(length=32), nullable=False),
        sa.Column("settings", Json),
        sa.Column("created_by", sa.String(length=64), nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_project"),
        sa.UniqueConstraint("slug", name="uq_project_slug"),
        **TABLE,
    )
    op.create_table(
        "transition",
        sa.Column("id", Id, nullable=False),
        sa.Column("entity", sa.String(length=16), nullable=False),
        sa.Column("entity_id", Id, nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("run_id", Id, nullable=False),
        sa.Column("run_seq", sa.Integer(), nullable=False),
        sa.Column("from_phase", sa.String(length=16), nullable=False),
        sa.Column("to_phase", sa.String(length=16), nullable=False),
        sa.Column("actor", sa.String(length=64), nullable=False),
        sa.Column("reason", sa.String(length=500), nullable=False),
        sa.Column("evidence", Json),
        sa.Column("at", Moment, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_transition"),
        sa.UniqueConstraint("entity", "entity_id", "seq", name="uq_transition_entity_entity_id_seq"),
        sa.UniqueConstraint("run_id", "run_seq", name="uq_transition_run_id_run_seq"),
        **TABLE,
    )
    op.create_table(
        "job_template",
        sa.Column("id", Id, nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("project_id", Id),
        sa.Column("title", sa.String(length=200), nullable=False),
        sa.Column("category", sa.String(length=64), nullable=False),
        sa.Column("description", sa.String(length=2000), nullable=False),
        sa.Column("current_version_id", Id),
        sa.Column("retired", sa.Boolean(), nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name="fk_job_template_project_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_job_template"),
        sa.UniqueConstraint("name", name="uq_job_template_name"),
        **TABLE,
    )
    op.create_index("ix_job_template_project_id", "job_template", ["project_id"], if_not_exists=True)
    op.create_table(
        "pipeline",
        sa.Column("id", Id, nullable=False),
        sa.Column("project_id", Id, nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("title", sa.String(length=200), nullable=False),
        sa.Column("description", sa.String(length=2000), nullable=False),
        sa.Column("current_version_id", Id),
        sa.Column("draft", Json),
        sa.Column("lock_version", sa.Integer(), nullable=False),
        sa.Column("created_by", sa.String(length=64), nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name="fk_pipeline_project_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_pipeline"),
        sa.UniqueConstraint("project_id", "name", name="uq_pipeline_project_id_name"),
        **TABLE,
    )
    op.create_table(
        "project_user",
        sa.Column("id", Id, nullable=False),
        sa.Column("project_id", Id, nullable=False),
        sa.Column("user_id", Id, nullable=False),
        sa.Column("role", sa.String(length=32), nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name="fk_project_user_project_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_project_user"),
        sa.UniqueConstraint("project_id", "user_id", name="uq_project_user_project_id_user_id"),
        **TABLE,
    )
    op.create_index("ix_project_user_user_id", "project_user", ["user_id"], if_not_exists=True)
    op.create_table(
        "job_template_version",
        sa.Column("id", Id, nullable=False),
        sa.Column("job_template_id", Id, nullable=False),
        sa.Column("number", Id, nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("document", Json, nullable=False),
        sa.Column("files", Json, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(["job_template_id"], ["job_template.id"], name="fk_job_template_version_job_template_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_job_template_version"),
        sa.UniqueConstraint("job_template_id", "sha256", name="uq_job_template_version_job_template_id_sha256"),
        **TABLE,
    )
    op.create_table(
        "pipeline_version",
        sa.Column("id", Id, nullable=False),
        sa.Column("project_id", Id, nullable=False),
        sa.Column("pipeline_id", Id),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("graph", Json, nullable=False),
        sa.Column("document", Json, nullable=False),
        sa.Column("created_by", sa.String(length=64), nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(["pipeline_id"], ["pipeline.id"], name="fk_pipeline_version_pipeline_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name="fk_pipeline_version_project_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_pipeline_version"),
        sa.UniqueConstraint("pipeline_id", "number", name="uq_pipeline_version_pipeline_id_number"),
        **TABLE,
    )
    op.create_index("ix_pipeline_version_project_id_sha256", "pipeline_version", ["project_id", "sha256"], if_not_exists=True)
    op.create_table(
        "schedule",
        sa.Column("id", Id, nullable=False),
        sa.Column("pipeline_id", Id, nullable=False),
        sa.Column("project_id", Id, nullable=False),
        sa.Column("cron", sa.String(length=100), nullable=False),
        sa.Column("timezone", sa.String(length=64), nullable=False),
        sa.Column("catchup", sa.String(length=32), nullable=False),
        sa.Column("max_active_runs", sa.Integer(), nullable=False),
        sa.Column("paused", sa.Boolean(), nullable=False),
        sa.Column("params", Json, nullable=False),
        sa.Column("next_due_at", Moment, nullable=False),
        sa.Column("created_by", sa.String(length=64), nullable=False),
        sa.Column("user_id", Id, nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["pipeline_id"], ["pipeline.id"], name="fk_schedule_pipeline_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name="fk_schedule_project_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_schedule"),
        sa.UniqueConstraint("pipeline_id", name="uq_schedule_pipeline_id"),
        **TABLE,
    )
    op.create_index("ix_schedule_paused_next_due_at", "schedule", ["paused", "next_due_at"], if_not_exists=True)
    op.create_index("ix_schedule_project_id", "schedule", ["project_id"], if_not_exists=True)
    op.create_table(
        "run",
        sa.Column("id", Id, nullable=False),
        sa.Column("project_id", Id, nullable=False),
        sa.Column("pipeline_id", Id),
        sa.Column("pipeline_version_id", Id, nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("params", Json, nullable=False),
        sa.Column("backend", sa.String(length=32), nullable=False),
        sa.Column("desired", sa.String(length=32), nullable=False),
        sa.Column("phase", sa.String(length=32), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("event_seq", sa.Integer(), nullable=False),
        sa.Column("precedence", sa.Integer(), nullable=False),
        sa.Column("queue", sa.String(length=63), nullable=False),
        sa.Column("idempotency_key", sa.String(length=128)),
        sa.Column("request_sha256", sa.String(length=64)),
        sa.Column("reason_code", sa.String(length=32), nullable=False),
        sa.Column("reason", sa.String(length=1000), nullable=False),
        sa.Column("parallelism", sa.Integer()),
        sa.Column("retry_of", Id),
        sa.Column("schedule_id", Id),
        sa.Column("scheduled_at", Moment),
        sa.Column("submitted_at", Moment, nullable=False),
        sa.Column("started_at", Moment),
        sa.Column("finished_at", Moment),
        sa.Column("deadline_at", Moment),
        sa.Column("timeout_s", Moment),
        sa.Column("next_check_at", Moment),
        sa.Column("created_by", sa.String(length=64), nullable=False),
        sa.Column("user_id", Id, nullable=False),
        sa.ForeignKeyConstraint(["pipeline_id"], ["pipeline.id"], name="fk_run_pipeline_id", ondelete="SET NULL"),
        sa.ForeignKeyConstraint(["pipeline_version_id"], ["pipeline_version.id"], name="fk_run_pipeline_version_id"),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name="fk_run_project_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_run"),
        sa.UniqueConstraint("project_id", "idempotency_key", name="uq_run_project_id_idempotency_key"),
        sqlite_autoincrement=True,
        **TABLE,
    )
    op.create_index("ix_run_next_check_at", "run", ["next_check_at"], if_not_exists=True)
    op.create_index("ix_run_phase_id", "run", ["phase", "id"], if_not_exists=True)
    op.create_index("ix_run_pipeline_id_phase_id", "run", ["pipeline_id", "phase", "id"], if_not_exists=True)
    op.create_index("ix_run_project_id_id", "run", ["project_id", "id"], if_not_exists=True)
    op.create_index("ix_run_schedule_id_phase", "run", ["schedule_id", "phase"], if_not_exists=True)
    op.create_table(
        "task_run",
        sa.Column("id", Id, nullable=False),
        sa.Column("run_id", Id, nullable=False),
        sa.Column("node_key", sa.String(length=63), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("phase", sa.String(length=32), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("waits_for", sa.String(length=63)),
        sa.Column("precedence", sa.Integer(), nullable=False),
        sa.Column("backend", sa.String(length=32), nullable=False),
        sa.Column("spec", Json),
        sa.Column("spec_sha256", sa.String(length=64)),
        sa.Column("cpu_milli", sa.BigInteger(), nullable=False),
        sa.Column("memory", sa.BigInteger(), nullable=False),
        sa.Column("gpu", sa.Integer(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("user_failures", sa.Integer(), nullable=False),
        sa.Column("infra_failures", sa.Integer(), nullable=False),
        sa.Column("allow_failure", sa.Boolean(), nullable=False),
        sa.Column("carried_from", Id),
        sa.Column("reason_code", sa.String(length=32), nullable=False),
        sa.Column("reason", sa.String(length=2000), nullable=False),
        sa.Column("ready_at", Moment),
        sa.Column("queued_at", Moment),
        sa.Column("started_at", Moment),
        sa.Column("finished_at", Moment),
        sa.Column("next_check_at", Moment),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_task_run_run_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_task_run"),
        sa.UniqueConstraint("run_id", "node_key", name="uq_task_run_run_id_node_key"),
        sqlite_autoincrement=True,
        **TABLE,
    )
    op.create_index("ix_task_run_next_check_at", "task_run", ["next_check_at"], if_not_exists=True)
    op.create_index("ix_task_run_backend_phase_precedence_run_id_id", "task_run", ["backend", "phase", "precedence", "run_id", "id"], if_not_exists=True)
    op.create_index("ix_task_run_run_id_phase_ordinal", "task_run", ["run_id", "phase", "ordinal"], if_not_exists=True)
    op.create_index("ix_task_run_run_id_waits_for_ordinal", "task_run", ["run_id", "waits_for", "ordinal"], if_not_exists=True)
    op.create_table(
        "attempt",
        sa.Column("id", Id, nullable=False),
        sa.Column("run_id", Id, nullable=False),
        sa.Column("task_run_id", Id, nullable=False),
        sa.Column("attempt_no", sa.Integer(), nullable=False),
        sa.Column("phase", sa.String(length=32), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("live_guard", Id),
        sa.Column("backend", sa.String(length=32), nullable=False),
        sa.Column("object_name", sa.String(length=63), nullable=False),
        sa.Column("handle", Json),
        sa.Column("devices", Json),
        sa.Column("outcome", sa.String(length=32)),
        sa.Column("stop_reason", sa.String(length=32)),
        sa.Column("stop_asked_at", Moment),
        sa.Column("armed_at", Moment),
        sa.Column("released_at", Moment),
        sa.Column("started_at", Moment),
        sa.Column("finished_at", Moment),
        sa.Column("run_deadline_at", Moment),
        sa.Column("ready_deadline_at", Moment),
        sa.Column("absent_since", Moment),
        sa.Column("exit_code", sa.Integer()),
        sa.Column("cause", sa.String(length=32), nullable=False),
        sa.Column("observed", sa.String(length=32), nullable=False),
        sa.Column("message", sa.String(length=2000), nullable=False),
        sa.Column("ranks", Json),
        sa.Column("diagnosis", Json),
        sa.Column("reaped", sa.Boolean(), nullable=False),
        sa.Column("next_check_at", Moment),
        sa.Column("created_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_attempt_run_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["task_run_id"], ["task_run.id"], name="fk_attempt_task_run_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_attempt"),
        sa.UniqueConstraint("backend", "object_name", name="uq_attempt_backend_object_name"),
        sa.UniqueConstraint("live_guard", name="uq_attempt_live_guard"),
        sa.UniqueConstraint("task_run_id", "attempt_no", name="uq_attempt_task_run_id_attempt_no"),
        sqlite_autoincrement=True,
        **TABLE,
    )
    op.create_index("ix_attempt_backend_phase", "attempt", ["backend", "phase"], if_not_exists=True)
    op.create_index("ix_attempt_next_check_at", "attempt", ["next_check_at"], if_not_exists=True)
    op.create_index("ix_attempt_run_id", "attempt", ["run_id"], if_not_exists=True)
    op.create_table(
        "metric",
        sa.Column("id", Id, nullable=False),
        sa.Column("run_id", Id, nullable=False),
        sa.Column("task_run_id", Id, nullable=False),
        sa.Column("attempt_id", Id, nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("value", Moment, nullable=False),
        sa.Column("step", sa.BigInteger()),
        sa.Column("at", Moment, nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_metric_run_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["task_run_id"], ["task_run.id"], name="fk_metric_task_run_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_metric"),
        **TABLE,
    )
    op.create_index("ix_metric_run_id_name_id", "metric", ["run_id", "name", "id"], if_not_exists=True)
    op.create_index("ix_metric_task_run_id", "metric", ["task_run_id"], if_not_exists=True)
    op.create_table(
        "output",
        sa.Column("id", Id, nullable=False),
        sa.Column("run_id", Id, nullable=False),
        sa.Column("task_run_id", Id, nullable=False),
        sa.Column("attempt_id", Id, nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("value", Json),
        sa.Column("path", sa.String(length=500)),
        sa.Column("size", sa.BigInteger()),
        sa.Column("media_type", sa.String(length=100)),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_output_run_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["task_run_id"], ["task_run.id"], name="fk_output_task_run_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_output"),
        sa.UniqueConstraint("task_run_id", "name", name="uq_output_task_run_id_name"),
        **TABLE,
    )
    op.create_index("ix_output_run_id", "output", ["run_id"], if_not_exists=True)
    op.create_table(
        "allocation",
        sa.Column("id", Id, nullable=False),
        sa.Column("attempt_id", Id, nullable=False),
        sa.Column("backend", sa.String(length=32), nullable=False),
        sa.Column("queue", sa.String(length=63), nullable=False),
        sa.Column("flavor", sa.String(length=63), nullable=False),
        sa.Column("resource", sa.String(length=64), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("reserved_at", Moment, nullable=False),
        sa.Column("released_at", Moment),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempt.id"], name="fk_allocation_attempt_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_allocation"),
        **TABLE,
    )
    op.create_index("ix_allocation_attempt_id", "allocation", ["attempt_id"], if_not_exists=True)
    op.create_index("ix_allocation_backend_released_at", "allocation", ["backend", "released_at", "flavor", "resource"], if_not_exists=True)
    op.create_table(
        "log_chunk",
        sa.Column("id", Id, nullable=False),
        sa.Column("attempt_id", Id, nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("byte_start", sa.BigInteger(), nullable=False),
        sa.Column("byte_end", sa.BigInteger(), nullable=False),
        sa.Column("object_key", sa.String(length=500), nullable=False),
        sa.Column("sealed", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempt.id"], name="fk_log_chunk_attempt_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_log_chunk"),
        sa.UniqueConstraint("attempt_id", "rank", "seq", name="uq_log_chunk_attempt_id_rank_seq"),
        **TABLE,
    )


def downgrade() -> None:
    for table in reversed(TABLES):
        op.drop_table(table, if_exists=True)
