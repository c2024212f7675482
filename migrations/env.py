"""Runs migrations over a connection given by `myapp.persistence.schema`, or (for `alembic revision`) over the settings' database."""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection, create_engine

from myapp.persistence.schema import target_metadata


def run(connection: Connection, *, compare: bool) -> None:
    context.configure(
        connection=connection,
        target_metadata=target_metadata() if compare else None,
        render_as_batch=connection.dialect.name == "sqlite",
        transactional_ddl=connection.dialect.name in ("sqlite", "postgresql"),
        transaction_per_migration=True,
    )
    with context.begin_transaction():
        context.run_migrations()


given: Connection | None = context.config.attributes.get("connection")
if given is not None:
    run(given, compare=False)
else:
    from myapp.config import load_settings

    with create_engine(load_settings().database).connect() as opened:
        run(opened, compare=True)
