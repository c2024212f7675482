"""The composition root of everything but the web: the one place that binds ports to adapters."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from myapp.backends.local.backend import LocalBackend
from myapp.backends.local.settings import LocalSettings
from myapp.backends.local.watcher import LocalWatcher
from myapp.catalog import Catalog, LiveCatalog, load_catalog
from myapp.config import Settings
from myapp.controllers import watch
from myapp.controllers.engine import Engine, crash_points
from myapp.domain.frameworks.framework import Framework
from myapp.domain.ports import ExecutionBackend
from myapp.domain.quantities import parse_cpu, parse_memory
from myapp.domain.runs.retry import RetryPolicy
from myapp.persistence.database import Database
from myapp.persistence.unit_of_work import Bell, SilentBell
from myapp.services.capacity import report_capacity
from myapp.services.context import Context
from myapp.services.pipeline_graphs import PipelineGraphs
from myapp.storage.artifacts import ArtifactStore
from myapp.storage.logs import LogStore


@dataclass(frozen=True)
class Platform:
    """One process's platform. Nothing is opened before it is used, so that it may be made before a fork.

    `durable`: commits survive a loss of power; the web's do, the engine's need not (what it loses, it observes again).
    """

    settings: Settings
    durable: bool = True
    ringing: bool = True

    @cached_property
    def bell(self) -> Bell:
        if not self.ringing:
            return SilentBell()
        from myapp.tasks.bell import ANSWER_S, RedisBell
        from myapp.tasks.celery_app import make_app

        return RedisBell(make_app(self.settings.redis, answer_s=ANSWER_S), self.settings.redis)

    @cached_property
    def database(self) -> Database:
        return Database(self.settings.database, bell=self.bell, durable=self.durable)

    @cached_property
    def catalog(self) -> Catalog:
        return load_catalog(self.settings.catalog)

    @cached_property
    def live_catalog(self) -> LiveCatalog:
        return LiveCatalog(self.settings.catalog)

    @cached_property
    def frameworks(self) -> Mapping[str, Framework]:
        return self.live_catalog.frameworks

    @cached_property
    def context(self) -> Context:
        root = self.settings.root
        return Context(
            database=self.database,
            frameworks=self.frameworks,
            logs=LogStore(root / "logs", self.settings.storage_url),
            artifacts=ArtifactStore(root / "artifacts", self.settings.storage_url),
            workspace_root=str(root / "workspace"),
            graphs=PipelineGraphs(),
            runtime_files=self.live_catalog.runtime_files,
            interpreters=frozenset(self.settings.local_interpreters),
        )

    @cached_property
    def local(self) -> LocalBackend:
        return LocalBackend(local_settings(self.settings))

    @cached_property
    def backends(self) -> Mapping[str, ExecutionBackend]:
        return {"local": self.local}

    @cached_property
    def engine(self) -> Engine:
        return Engine(
            context=self.context,
            backends=self.backends,
            retry_defaults=RetryPolicy(infra_limit=self.settings.infra_retries),
            crash=crash_points(os.environ.get("CUBE_CRASH_AT", "")),
        )

    def report(self) -> None:
        """Write down what the backends have."""
        for kind, backend in self.backends.items():
            report_capacity(self.database, kind, backend.capacity())

    def watch(self, stop: threading.Event) -> None:
        """The watch process: until `stop` is set."""
        watcher = LocalWatcher(self.settings.root, self.settings.node)
        watch.run(self.engine, watcher, stop, report=self.report)


def local_settings(settings: Settings) -> LocalSettings:
    return LocalSettings(
        home=settings.root,
        node=settings.node,
        sandbox=settings.local_sandbox,
        allow_sdist=settings.local_allow_sdist,
        interpreters=dict(settings.local_interpreters),
        log_limit=parse_memory(settings.log_limit),
        cpu=parse_cpu(settings.local_cpu) if settings.local_cpu else None,
        memory=parse_memory(settings.local_memory) if settings.local_memory else None,
        gpu=settings.local_gpu,
    )


def create_platform(settings: Settings, *, durable: bool = True, ringing: bool = True) -> Platform:
    return Platform(settings, durable=durable, ringing=ringing)
