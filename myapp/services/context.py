"""What a use case needs from outside: bound once by the composition root, passed to every service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlalchemy import Connection, select

from myapp.models import Project
from myapp.persistence.database import Database

if TYPE_CHECKING:
    from myapp.domain.frameworks.framework import Framework
    from myapp.domain.template import JobTemplateSpec
    from myapp.services.pipeline_graphs import PipelineGraphs
    from myapp.storage.artifacts import ArtifactStore
    from myapp.storage.logs import LogStore


@dataclass(frozen=True)
class Context:
    """`templates` and `slugs` cache what can never change: pinned template versions, and the slugs of projects.

    `runtime_files`: framework -> the files laid beside its inline scripts (name -> text), so that they can import the
    runtime library. `interpreters`: the names that an administrator has allowed.
    """

    database: Database
    frameworks: Mapping[str, Framework]
    logs: LogStore
    artifacts: ArtifactStore
    workspace_root: str
    graphs: PipelineGraphs
    templates: dict[tuple[str, str], JobTemplateSpec] = field(default_factory=dict)
    slugs: dict[int, str] = field(default_factory=dict)
    runtime_files: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    interpreters: frozenset[str] = frozenset()

    def workspace_of(self, project: str) -> str:
        """The project's folder for its people's files."""
        return f"{self.workspace_root}/{project}"

    def slug(self, connection: Connection, project_id: int) -> str:
        known = self.slugs.get(project_id)
        if known is None:
            known = connection.execute(select(Project.slug).where(Project.id == project_id)).scalar_one()
            self.slugs[project_id] = known
        return known
