"""The whole run engine in one process: real database, real backend, and a bell that a test may tamper with."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from sqlalchemy import Row, func, insert, select

from myapp.backends.fake.backend import FakeBackend
from myapp.backends.local.backend import LocalBackend
from myapp.backends.local.settings import LocalSettings
from myapp.backends.local.watcher import LocalWatcher
from myapp.catalog import catalog_root, load_catalog
from myapp.controllers import sweep, work
from myapp.controllers.engine import Engine
from myapp.domain.permissions import PLATFORM
from myapp.domain.ports import AttemptKey, ExecutionBackend, Handle
from myapp.domain.runs.phases import RUN_TERMINAL
from myapp.domain.runs.retry import RetryPolicy
from myapp.models import Flavor, Project
from myapp.persistence import due_store
from myapp.persistence.database import Database
from myapp.persistence.run_store import ATTEMPT, OUTPUT, RUN, TASK
from myapp.persistence.tables import OUTBOX
from myapp.persistence.unit_of_work import Topic
from myapp.services.capacity import report_capacity
from myapp.services.context import Context
from myapp.services.doctor import doctor
from myapp.services.pipeline_graphs import PipelineGraphs
from myapp.services.publish_pipeline import publish_pipeline
from myapp.services.submit_job import submit_job
from myapp.services.submit_run import submit_run
from myapp.storage.artifacts import ArtifactStore
from myapp.storage.logs import LogStore

API = "cube-studio.io/v1alpha1"
DEADLINE_S = 60.0
GIB = 1 << 30


class Clock:
    """Real time, or a time that only moves when told to (`frozen`); either may be advanced."""

    def __init__(self, frozen: bool = False) -> None:
        self._at = time.time() if frozen else None
        self._ahead = 0.0

    def __call__(self) -> float:
        return (time.time() if self._at is None else self._at) + self._ahead

    def advance(self, seconds: float) -> None:
        self._ahead += seconds


class CollectingBell:
    """Keeps what rang until somebody takes it. `loses` drops every ring; `doubles` and `shuffles` as they say."""

    def __init__(self, *, loses: bool = False, doubles: bool = False, shuffles: int | None = None) -> None:
        self.loses, self.doubles = loses, doubles
        self.random = random.Random(shuffles) if shuffles is not None else None
        self.rung: list[tuple[Topic, str]] = []
        self.moves: list[dict[int, int]] = []

    def ring(self, topic: Topic, key: str) -> None:
        if not self.loses:
            self.rung += [(topic, key)] * (2 if self.doubles else 1)

    def moved(self, runs: Mapping[int, int]) -> None:
        self.moves.append(dict(runs))

    def take(self) -> tuple[Topic, str] | None:
        if not self.rung:
            return None
        return self.rung.pop(self.random.randrange(len(self.rung)) if self.random else 0)


class CountingBackend(FakeBackend):
    """Remembers how often each object's command was started, also after the object was deleted."""

    def fire(self, key: AttemptKey, handle: Handle) -> None:
        with self._lock:
            before = self.starts(key.object_name)
            super().fire(key, handle)
            self.fired[key.object_name] += self.starts(key.object_name) - before

    @cached_property
    def fired(self) -> Counter[str]:
        return Counter()


class Died(BaseException):
    """A process killed at a crash point: nothing may catch it."""


def dies_at(point: str, times: int = 1) -> Callable[[str], None]:
    left = [times]

    def passing(name: str) -> None:
        if name == point and left[0] > 0:
            left[0] -= 1
            raise Died(name)

    return passing


def shell(command: str, **task: Any) -> dict[str, Any]:
    """A task (without its name) that runs a shell command, small enough that several fit at once."""
    job = {"framework": "shell", "command": ["/bin/sh", "-c", command], **task.pop("job", {})}
    return {"job": job, "resources": {"cpu": "100m", "memory": "16Mi"}, **task}


def tasks_of(**tasks: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"name": name.replace("_", "-"), **task} for name, task in tasks.items()]


@dataclass
class House:
    """A database, a backend and an engine. `step` does what a worker, a watch and a beat do, once."""

    database: Database
    backend: ExecutionBackend
    root: Path
    clock: Clock
    bell: CollectingBell
    engine: Engine
    rung: sweep.Rung
    watcher: LocalWatcher | None = None
    swept_at: float = 0.0

    @classmethod
    def build(
        cls,
        url: str,
        root: Path,
        *,
        backend: ExecutionBackend | None = None,
        clock: Clock | None = None,
        bell: CollectingBell | None = None,
        retries: RetryPolicy | None = None,
        cpu: int = 4000,
        catalog: bool = False,
        new: bool = True,
    ) -> House:
        clock, bell = clock or Clock(), bell or CollectingBell()
        database = Database(url, bell=bell, durable=False, clock=clock)
        real = backend is None
        if backend is None:
            backend = LocalBackend(
                LocalSettings(home=root, sandbox="none", node="here", cpu=cpu, memory=8 * GIB, gpu=0)
            )
        loaded = load_catalog(catalog_root())
        context = Context(
            database=database,
            frameworks=loaded.frameworks,
            logs=LogStore(root / "logs"),
            artifacts=ArtifactStore(root / "artifacts"),
            workspace_root=str(root / "workspace"),
            graphs=PipelineGraphs(),
            runtime_files={name: loaded.runtime_files(one) for name, one in loaded.frameworks.items()},
        )
        engine = Engine(
            context=context,
            backends={backend.kind: backend},
            retry_defaults=retries or RetryPolicy(infra_backoff_s=0.01, infra_limit=3),
        )
        house = cls(database, backend, root, clock, bell, engine, sweep.Rung())
        if new:
            house._furnish()
        if real:
            house.watcher = LocalWatcher(root, "here")
        return house

    def _furnish(self) -> None:
        with self.database.write() as unit:
            unit.connection.execute(
                insert(Project).values(
                    slug="public", namespace="public", backend=self.backend.kind, created_at=unit.now
                )
            )
        report_capacity(self.database, self.backend.kind, self.backend.capacity())
        self.workspace.mkdir(parents=True, exist_ok=True)

    @property
    def context(self) -> Context:
        return self.engine.context

    @property
    def workspace(self) -> Path:
        return self.root / "workspace" / "public"

    def reborn(self, crash: Callable[[str], None] = lambda point: None) -> None:
        """A new worker process over the same database and backend: it remembers nothing."""
        context = replace(self.context, graphs=PipelineGraphs(), templates={}, slugs={})
        self.engine = replace(self.engine, context=context, crash=crash)
        self.rung = sweep.Rung()

    def close(self) -> None:
        if self.watcher is not None:
            self.watcher.close()
        for owned in list(self.backend.list_owned()):
            self.backend.destroy(owned)
        if isinstance(self.backend, LocalBackend):
            self.backend.close()
        self.database.dispose()

    # -- asking for work --------------------------------------------------------------------------------------------

    def publish(self, tasks: list[dict[str, Any]], name: str = "flow", **spec: Any) -> int:
        document = {
            "apiVersion": API,
            "kind": "Pipeline",
            "metadata": {"name": name, "project": "public"},
            "spec": {"tasks": tasks, **spec},
        }
        return publish_pipeline(self.context, PLATFORM, document).id

    def submit(self, tasks: list[dict[str, Any]], *, params: dict[str, Any] | None = None, **spec: Any) -> int:
        return submit_run(self.context, PLATFORM, pipeline_id=self.publish(tasks, **spec), params=params).run_id

    def job(self, command: list[str] | None = None, *, document: dict[str, Any] | None = None, **spec: Any) -> int:
        small = {"resources": {"cpu": "100m", "memory": "16Mi"}}
        made = document or {
            "apiVersion": API,
            "kind": "AIJob",
            "metadata": {"name": "job"},
            "spec": {"framework": "shell", "command": command, **small, **spec},
        }
        return submit_job(self.context, PLATFORM, made).run_id

    # -- doing it ---------------------------------------------------------------------------------------------------

    def answer(self, bell: tuple[Topic, str]) -> None:
        getattr(work, str(bell[0]))(self.engine, bell[1])

    def drain(self) -> None:
        while (bell := self.bell.take()) is not None:
            self.answer(bell)

    def sweep(self) -> None:
        """The net and the housekeeping: it rings whatever the bell does to events, and deletes what ended."""
        loses, self.bell.loses = self.bell.loses, False
        try:
            sweep.due(self.engine, self.rung)
        finally:
            self.bell.loses = loses
        rung, self.bell.rung = self.bell.rung, []
        for bell in rung:
            self.answer(bell)
        while sweep.reap(self.engine) >= sweep.REAP_BATCH:
            pass

    def step(self, wait_s: float = 0.02) -> None:
        self.drain()
        if self.watcher is not None:
            for attempt_id in self.watcher.events(wait_s):
                self.bell.ring(Topic.ATTEMPT, str(attempt_id))
        if time.monotonic() >= self.swept_at + 0.05 or self.bell.loses or self.watcher is None:
            self.swept_at = time.monotonic()
            self.sweep()
        self.drain()

    def next_due(self) -> float | None:
        """When somebody will look at something again: a row's time, or a doorbell that has gone unanswered."""
        with self.database.read() as connection:
            row = due_store.next_due(connection)
            bell = connection.execute(select(func.min(OUTBOX.c.created_at))).scalar_one()
        times = [t for t in (row, bell + sweep.UNANSWERED_AFTER_S if bell is not None else None) if t is not None]
        return min(times, default=None)

    def skip(self, least_s: float = 0.0) -> None:
        """Advance the clock to the next moment at which anything is due (at least by `least_s`)."""
        due = self.next_due()
        if due is not None:
            self.clock.advance(max(least_s, due - self.clock() + 0.001))

    def until(self, check: Callable[[], Any], what: str = "", *, skipping: bool = False) -> Any:
        give_up = time.monotonic() + DEADLINE_S
        while not (answer := check()):
            if time.monotonic() > give_up:
                raise AssertionError(f"never came true: {what}; {self.picture()}")
            self.step()
            if skipping and not self.bell.rung and not check():
                self.skip(0.05)
        return answer

    def wait(self, *run_ids: int, skipping: bool = False) -> list[Row[Any]]:
        """Work until the runs have ended. `skipping`: the clock jumps over every wait (frozen clocks want that)."""
        for run_id in run_ids:
            self.until(partial(self.ended, run_id), f"end of run {run_id}", skipping=skipping)
        return [self.run(run_id) for run_id in run_ids]

    def ended(self, run_id: int) -> bool:
        return self.run(run_id).phase in RUN_TERMINAL

    def end(self, run_id: int, *, skipping: bool = False) -> Row[Any]:
        return self.wait(run_id, skipping=skipping)[0]

    # -- looking ----------------------------------------------------------------------------------------------------

    def rows(self, query: Any) -> list[Row[Any]]:
        with self.database.read() as connection:
            return list(connection.execute(query).all())

    def run(self, run_id: int) -> Row[Any]:
        return self.rows(select(RUN).where(RUN.c.id == run_id))[0]

    def tasks(self, run_id: int) -> dict[str, Row[Any]]:
        return {r.node_key: r for r in self.rows(select(TASK).where(TASK.c.run_id == run_id).order_by(TASK.c.ordinal))}

    def phases(self, run_id: int) -> dict[str, str]:
        return {key: row.phase for key, row in self.tasks(run_id).items()}

    def attempts(self, run_id: int) -> list[Row[Any]]:
        return self.rows(
            select(ATTEMPT, TASK.c.node_key)
            .join(TASK, TASK.c.id == ATTEMPT.c.task_run_id)
            .where(ATTEMPT.c.run_id == run_id)
            .order_by(ATTEMPT.c.id)
        )

    def outputs(self, run_id: int) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for row in self.rows(
            select(TASK.c.node_key, OUTPUT.c.name, OUTPUT.c.kind, OUTPUT.c.value, OUTPUT.c.path)
            .join(TASK, TASK.c.id == OUTPUT.c.task_run_id)
            .where(OUTPUT.c.run_id == run_id)
        ):
            found.setdefault(row.node_key, {})[row.name] = row.value if row.kind == "value" else row.path
        return found

    def picture(self) -> str:
        """Everything that is not over, for a failed test's message."""
        runs = self.rows(select(RUN.c.id, RUN.c.phase, RUN.c.desired, RUN.c.reason, RUN.c.next_check_at))
        tasks = self.rows(
            select(TASK.c.run_id, TASK.c.node_key, TASK.c.phase, TASK.c.waits_for, TASK.c.reason).limit(30)
        )
        attempts = self.rows(
            select(ATTEMPT.c.id, ATTEMPT.c.phase, ATTEMPT.c.observed, ATTEMPT.c.message, ATTEMPT.c.next_check_at)
            .where(ATTEMPT.c.live_guard.is_not(None))
            .limit(30)
        )
        bells = self.rows(select(OUTBOX.c.topic, OUTBOX.c.key, OUTBOX.c.created_at))
        return "\n".join(str(x) for x in (f"now {self.clock()}", *runs, *tasks, *attempts, *bells))

    def lines(self, name: str) -> list[str]:
        """What jobs have appended to a file of the workspace."""
        path = self.workspace / name
        return path.read_text().split() if path.exists() else []

    def check(self, ignore: Iterable[str] = ()) -> None:
        """The invariants hold."""
        backends = {self.backend.kind: self.backend}
        found = [f for f in doctor(self.context, backends, full=True) if f.severity == "error" and f.code not in ignore]
        assert found == []

    def capacity(self, **amounts: int) -> None:
        with self.database.write() as unit:
            unit.connection.execute(Flavor.__table__.delete())  # type: ignore[attr-defined]
            unit.connection.execute(
                insert(Flavor),
                [
                    {
                        "backend": self.backend.kind,
                        "name": "one",
                        "resource": k,
                        "amount": v,
                        "note": "",
                        "updated_at": unit.now,
                    }
                    for k, v in amounts.items()
                ],
            )


@contextmanager
def opened(house: House) -> Any:
    try:
        yield house
    finally:
        house.close()
