"""A context over a database, with the shipped catalogue and stores in a temporary folder; actors and projects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import insert

from myapp.catalog import catalog_root, load_catalog
from myapp.domain.documents import API_VERSION
from myapp.domain.permissions import PLATFORM, Actor, Role
from myapp.persistence.database import Database
from myapp.persistence.tables import FLAVOR, USER
from myapp.services.context import Context
from myapp.services.create_project import create_project
from myapp.services.pipeline_graphs import PipelineGraphs
from myapp.services.sync_catalog import sync_catalog
from myapp.storage.artifacts import ArtifactStore
from myapp.storage.logs import LogStore


def make_context(database: Database, folder: Path, *, catalog: bool = True) -> Context:
    """With `catalog`, the shipped job templates are published too."""
    loaded = load_catalog(catalog_root())
    context = Context(
        database=database,
        frameworks=loaded.require().frameworks,
        logs=LogStore(folder / "logs"),
        artifacts=ArtifactStore(folder / "artifacts"),
        workspace_root=str(folder / "workspace"),
        graphs=PipelineGraphs(),
    )
    if catalog:
        sync_catalog(context, PLATFORM, loaded)
    return context


def make_project(context: Context, slug: str, user_id: int = 0, role: Role = Role.DEV) -> tuple[int, Actor]:
    """A project, and an actor with that role in it and no other."""
    made = create_project(context, PLATFORM, slug=slug)
    return made.id, Actor(user_id or 1000 + made.id, f"user-of-{slug}", roles={made.id: role})


def add_user(database: Database, user_id: int, username: str) -> None:
    """A row of Flask-AppBuilder's users."""
    with database.write() as unit:
        unit.connection.execute(
            insert(USER).values(
                id=user_id,
                username=username,
                first_name=username.title(),
                last_name="Test",
                email=f"{username}@example.org",
            )
        )


def add_capacity(database: Database, backend: str = "local", **amounts: int) -> None:
    """What a backend has: cpu (millicores), memory (bytes), gpu."""
    with database.write() as unit:
        unit.connection.execute(
            insert(FLAVOR),
            [
                {
                    "backend": backend,
                    "name": backend,
                    "resource": resource,
                    "amount": amount,
                    "note": "",
                    "updated_at": unit.now,
                }
                for resource, amount in amounts.items()
            ],
        )


def pipeline_document(
    name: str = "demo", *, project: str = "public", tasks: list[dict[str, Any]] | None = None, **spec: Any
) -> dict[str, Any]:
    """A Pipeline document; by default of one shell task."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Pipeline",
        "metadata": {"name": name, "project": project},
        "spec": {"tasks": tasks or [{"name": "hello", "template": "shell", "args": {"command": "true"}}], **spec},
    }
