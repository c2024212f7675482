"""The cost of a task does not grow with its run or with the history: statements are counted, plans are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, text

from myapp.backends.fake.backend import FakeBackend, Script
from myapp.controllers import schedule, sweep, work
from myapp.domain.permissions import PLATFORM
from myapp.domain.ports import Collected
from myapp.persistence import run_store
from myapp.persistence.unit_of_work import Topic
from myapp.services.cancel_run import cancel_run
from tests.integration.engine_harness import Clock, House, shell

BODY = shell("true")
LEAVES = Script(collected=Collected(values={"x": 1}))
# tables that grow without end, or with the size of a run: none of the engine's statements may read one from end to end
GROWING = (
    "run",
    "task_run",
    "attempt",
    "transition",
    "allocation",
    "output",
    "metric",
    "log_chunk",
    "audit",
    "pipeline_version",
)


@pytest.fixture
def house(fresh_url: Callable[[str], str], tmp_path: Path) -> Iterator[House]:
    clock = Clock(frozen=True)
    made = House.build(fresh_url("sqlite"), tmp_path / "home", backend=FakeBackend(LEAVES, clock), clock=clock)
    yield made
    made.close()


@contextmanager
def statements(house: House) -> Iterator[list[tuple[str, Any]]]:
    seen: list[tuple[str, Any]] = []

    def note(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        seen.append((statement, parameters[0] if many else parameters))

    event.listen(house.database.engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(house.database.engine, "before_cursor_execute", note)


def submit(house: House, shape: str, size: int) -> int:
    """A run of `size` tasks; in each, no more than a few can be started at once."""
    if shape == "chain":
        tasks = [{"name": f"t{i}", **({"dependsOn": [f"t{i - 1}"]} if i else {}), **BODY} for i in range(size)]
    else:
        keys = [f"t{i}" for i in range(size - 1)]
        tasks = [*({"name": key, **BODY} for key in keys), {"name": "last", "dependsOn": keys, **BODY}]
    return house.submit(tasks, name=f"{shape}-{size}", parallelism=4 if shape == "fan-in" else None)


@dataclass(frozen=True)
class Cost:
    """`steps`: instructions of the database's virtual machine, counted by the database itself in tens."""

    statements: int
    steps: int


@contextmanager
def counted(house: House) -> Iterator[list[Cost]]:
    """What the block costs; SQLite counts the rows it touches as instructions, and always the same."""
    ticks = [0]
    connections: set[Any] = set()

    def tick() -> int:
        ticks[0] += 1
        return 0

    def watch(connection: Any, *_: Any) -> None:
        raw = connection.connection.dbapi_connection
        if raw not in connections:
            connections.add(raw)
            raw.set_progress_handler(tick, 10)

    found: list[Cost] = []
    event.listen(house.database.engine, "before_cursor_execute", watch)
    try:
        with statements(house) as seen:
            yield found
        found.append(Cost(len(seen), ticks[0] * 10))
    finally:
        event.remove(house.database.engine, "before_cursor_execute", watch)
        for raw in connections:
            raw.set_progress_handler(None, 0)


def one_more(house: House, run_id: int) -> Cost:
    """Close the oldest live attempt and launch what follows: what that costs."""
    with house.database.read() as connection:
        live = run_store.live_attempts(connection, run_id)
    with counted(house) as cost:
        work.attempt(house.engine, str(live[0]))
    return cost[0]


@pytest.mark.parametrize("shape", ["chain", "fan-in"])
def test_a_task_costs_the_same_in_a_run_of_any_size(house: House, shape: str) -> None:
    costs: dict[int, list[Cost]] = {}
    for size in (20, 1000, 10_000):
        run_id = submit(house, shape, size)
        while house.bell.rung:
            house.drain()
        one_more(house, run_id)
        costs[size] = [one_more(house, run_id) for _ in range(4)]
        cancel_run(house.context, PLATFORM, run_id)
        house.end(run_id, skipping=True)
    assert (
        [c.statements for c in costs[20]]
        == [c.statements for c in costs[1000]]
        == [c.statements for c in costs[10_000]]
    )
    assert max(c.statements for c in costs[20]) < 60
    assert max(c.steps for c in costs[10_000]) <= 1.3 * max(c.steps for c in costs[20]) + 200


def active(house: House, run_id: int, key: str) -> bool:
    return house.phases(run_id)[key] == "active"


def test_a_task_that_reads_outputs_pays_for_those_it_reads(house: House) -> None:
    costs = []
    for size in (2, 400):
        keys = [f"t{i}" for i in range(size)]
        run_id = house.submit(
            [
                *({"name": key, **BODY} for key in keys),
                {"name": "gate", "dependsOn": keys, **BODY},
                {"name": "last", "dependsOn": ["gate"], **shell("true", env={"X": "{{ tasks.t0.outputs.x }}"})},
            ],
            name=f"outputs-{size}",
        )
        house.until(partial(active, house, run_id, "gate"), skipping=True)
        gate = next(a for a in house.attempts(run_id) if a.node_key == "gate")
        with counted(house) as cost:
            house.answer((Topic.ATTEMPT, str(gate.id)))
        assert house.phases(run_id)["last"] == "active"
        costs.append(cost[0].steps)
        house.end(run_id, skipping=True)
    assert costs[1] <= 1.3 * costs[0] + 200


HISTORY = 20_000


def age(house: House) -> None:
    """A long past: many ended runs of the schedule's pipeline, each with a task and an attempt that was reaped."""
    with house.database.write() as unit:
        for name, columns, values in (
            (
                "run",
                "project_id, pipeline_id, pipeline_version_id, kind, name, params, backend, desired, phase, version,"
                " event_seq, precedence, queue, reason_code, reason, schedule_id, submitted_at, created_by, user_id",
                "1, 1, 1, 'pipeline', 'old', '{}', 'fake', 'run', 'succeeded', 0, 0, 0, 'default', '', '', 1, 0, '', 0",
            ),
            (
                "task_run",
                "run_id, node_key, ordinal, phase, version, precedence, backend, cpu_milli, memory, gpu, attempts,"
                " user_failures, infra_failures, allow_failure, reason_code, reason",
                "n + (SELECT max(id) FROM run) - :most, 'a', 0, 'succeeded', 0, 0, 'fake', 0, 0, 0, 1, 0, 0, 0, '', ''",
            ),
            (
                "attempt",
                "run_id, task_run_id, attempt_no, phase, version, backend, object_name, cause, observed, message,"
                " reaped, created_at",
                "n + (SELECT max(id) FROM run) - :most, n + (SELECT max(id) FROM task_run) - :most, 1, 'succeeded', 0,"
                " 'fake', 'old-' || n, '', '', '', 1, 0",
            ),
        ):
            unit.connection.execute(
                text(
                    "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :most)"
                    f" INSERT INTO {name} ({columns}) SELECT {values} FROM numbers"
                ),
                {"most": HISTORY},
            )


def test_the_past_costs_nothing(house: House) -> None:
    """Work, the sweep, a worker's start and the schedules, on an empty database and on one with a long history."""
    house.publish([{"name": "a", **BODY}], name="nightly", schedule={"cron": "* * * * *", "maxActiveRuns": 1000})

    def some_hours() -> Cost:
        with counted(house) as cost:
            for _ in range(6):
                house.clock.advance(3600)
                assert schedule.step(house.engine) == 1
                house.end(house.job(["true"]), skipping=True)
                work.started(house.engine)
                house.sweep()
        return cost[0]

    some_hours()
    before = some_hours()
    age(house)
    after = some_hours()
    assert before.steps > 1000
    assert after.steps <= 1.3 * before.steps


def test_starting_a_run_costs_statements_by_the_batch_not_by_the_square(house: House) -> None:
    counts = {}
    for size in (100, 200, 400):
        run_id = submit(house, "fan-in", size)
        with statements(house) as seen:
            house.drain()
        counts[size] = len(seen)
        cancel_run(house.context, PLATFORM, run_id)
        house.end(run_id, skipping=True)
    assert counts[400] - counts[200] <= 2 * (counts[200] - counts[100]) + 20


def everything(house: House) -> None:
    """A bit of all that the engine ever asks the database."""
    run_id = house.submit(
        [
            {"name": "a", **BODY},
            {"name": "b", "dependsOn": ["a"], **shell("true", env={"X": "{{ tasks.a.phase }} {{ run.id }}"})},
            {"name": "c", **shell("true", retry={"limit": 1, "backoff": 5})},
            {"name": "d", "dependsOn": ["b", "c"], "trigger": "all_done", **BODY},
        ],
        parallelism=2,
        timeout="1h",
        schedule={"cron": "* * * * *", "maxActiveRuns": 3},
    )
    house.end(run_id, skipping=True)
    second = house.submit([{"name": "a", **BODY}, {"name": "b", "dependsOn": ["a"], **BODY}], name="other")
    house.bell.take()
    work.run(house.engine, str(second))
    cancel_run(house.context, PLATFORM, second)
    house.end(second, skipping=True)
    house.clock.advance(100)
    schedule.step(house.engine)
    work.started(house.engine)
    house.sweep()
    sweep.orphans(house.engine, "fake")
    with house.database.read() as connection:
        for topic in (Topic.RUN, Topic.ATTEMPT):
            run_store.run(connection, run_id) if topic is Topic.RUN else run_store.attempt(connection, 1)


def test_no_statement_of_the_engine_reads_a_growing_table_from_end_to_end(house: House) -> None:
    with statements(house) as seen:
        everything(house)
    asked = dict(seen)
    scans: Counter[str] = Counter()
    with house.database.read() as connection:
        for statement, parameters in asked.items():
            if statement.split()[0] not in ("SELECT", "UPDATE", "DELETE"):
                continue
            for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters):
                detail = str(row[-1])
                if detail.startswith("SCAN ") and detail.split()[1] in GROWING:
                    scans[f"{detail}: {' '.join(statement.split())[:300]}"] += 1
    assert len(asked) > 40
    assert scans == {}


def test_the_graph_of_a_version_is_read_once_by_a_process(house: House) -> None:
    with statements(house) as seen:
        run_id = submit(house, "chain", 20)
        house.end(run_id, skipping=True)
    reads = [s for s, _ in seen if "pipeline_version.graph" in s and s.startswith("SELECT pipeline_version.graph")]
    assert len(reads) == 1
