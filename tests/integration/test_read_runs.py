"""Runs, logs, artifacts and events as people read them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, insert

from myapp.domain.errors import Invalid, NotFound
from myapp.domain.permissions import PLATFORM, Actor, Role
from myapp.persistence.database import Database
from myapp.persistence.tables import METRIC, OUTPUT, RUN, TASK, insert_row
from myapp.services.context import Context
from myapp.services.read_artifact import read_artifact
from myapp.services.read_events import events_after
from myapp.services.read_log import read_log
from myapp.services.read_runs import RunFilter, describe_run, list_metrics, list_runs, list_tasks, read_run
from tests.factories.platform import add_capacity, make_context
from tests.factories.rows import add_project, add_run, add_version, finish_task, start_task, task_id


@pytest.fixture
def context(database: Database, tmp_path: Path) -> Context:
    return make_context(database, tmp_path, catalog=False)


@pytest.fixture
def light(sqlite_database: Database, tmp_path: Path) -> Context:
    return make_context(sqlite_database, tmp_path, catalog=False)


@pytest.fixture
def projects(context: Context) -> dict[str, tuple[int, int]]:
    """slug -> (project, a version in it)."""
    made = {}
    for slug in ("alpha", "beta", "gamma"):
        project = add_project(context.database, slug)
        made[slug] = (project, add_version(context.database, project))
    return made


def member(*projects: int) -> Actor:
    return Actor(5, "reader", roles=dict.fromkeys(projects, Role.VIEWER))


def test_lists_are_newest_first_filtered_and_paged(context: Context, projects: dict[str, tuple[int, int]]) -> None:
    ids: dict[str, list[int]] = {slug: [] for slug in projects}
    for n in range(12):
        slug = ("alpha", "beta", "gamma")[n % 3]
        project, version = projects[slug]
        phase = "running" if n >= 9 else "succeeded"
        ids[slug].append(
            add_run(context.database, project, version, name=f"train_{n}", phase=phase, created_by=f"u{n % 2}")
        )
    everything = sorted((i for some in ids.values() for i in some), reverse=True)

    def listed(actor: Actor = PLATFORM, **wanted: Any) -> list[int]:
        return [r["id"] for r in list_runs(context, actor, RunFilter(**wanted), page_size=100).result]

    assert listed() == everything
    both = member(projects["alpha"][0], projects["beta"][0])
    assert listed(both) == sorted(ids["alpha"] + ids["beta"], reverse=True)
    assert listed(member(projects["gamma"][0])) == ids["gamma"][::-1]
    assert listed(member()) == []
    assert listed(project="beta") == ids["beta"][::-1]
    assert listed(both, project="gamma") == []
    assert listed(phases=("running",)) == everything[:3]
    assert listed(phases=("running", "succeeded"), created_by="u1") == everything[::2]
    assert listed(contains="train_1") == sorted([everything[1], everything[0], everything[-2]], reverse=True)
    assert listed(contains="%") == []
    assert listed(both, before_id=everything[5]) == [i for i in listed(both) if i < everything[5]]
    page = list_runs(context, both, page=1, page_size=3)
    assert ([r["id"] for r in page.result], page.count, page.count_exact) == (listed(both)[3:6], 8, True)
    seen, cursor = [], None
    while True:
        page = list_runs(context, both, RunFilter(before_id=cursor), page_size=3)
        seen += [r["id"] for r in page.result]
        cursor = page.next_before_id
        if cursor is None:
            break
    assert seen == listed(both)
    with pytest.raises(Invalid):
        listed(phases=("runing",))


@pytest.mark.parametrize(("page", "page_size"), [(-1, 5), (0, 0), (0, -7), (10**9, 100)])
def test_nonsense_pages_are_refused(light: Context, page: int, page_size: int) -> None:
    with pytest.raises(Invalid):
        list_runs(light, PLATFORM, page=page, page_size=page_size)


def test_counts_are_bounded(light: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("myapp.services.read_runs.COUNT_UP_TO", 10)
    project = add_project(light.database, "alpha")
    version = add_version(light.database, project)
    with light.database.write() as unit:
        row = {"project_id": project, "pipeline_version_id": version, "name": "r", "params": {}, "submitted_at": 0.0}
        unit.connection.execute(insert(RUN), [row] * 12)
    page = list_runs(light, PLATFORM, page_size=5)
    assert (page.count, page.count_exact) == (10, False)
    page = list_runs(light, PLATFORM, RunFilter(before_id=10), page_size=5)
    assert (page.count, page.count_exact) == (9, True)


def test_reading_costs_the_same_number_of_statements_however_much_there_is(light: Context) -> None:
    project = add_project(light.database, "alpha")
    version = add_version(light.database, project)
    counted: list[str] = []
    event.listen(light.database.engine, "before_cursor_execute", lambda c, cur, s, p, x, m: counted.append(s))

    def statements(call: Any) -> int:
        counted.clear()
        call()
        return len([s for s in counted if s.startswith("SELECT")])

    costs = []
    for size in (1, 40):
        keys = tuple(f"t{n}" for n in range(size))
        for _ in range(size):
            run_id = add_run(light.database, project, version, keys)
        for key in keys:
            start_task(light.database, run_id, key)
        describe_run(light, PLATFORM, run_id)  # the graph is read once per process
        listing = statements(lambda: list_runs(light, PLATFORM, page_size=1))
        costs.append((listing, statements(partial(describe_run, light, PLATFORM, run_id))))
    assert costs[0] == costs[1]
    assert costs[0][0] == 2


def test_one_run_with_all_that_is_known_of_it(context: Context, projects: dict[str, tuple[int, int]]) -> None:
    project, version = projects["alpha"]
    add_capacity(context.database, cpu=1000, memory=2**30)
    run_id = add_run(context.database, project, version, ("one", "two", "three"), precedence=-10, params={"seed": 1})
    attempt = start_task(context.database, run_id)
    with context.database.write() as unit:
        unit.connection.execute(
            TASK.update().where(TASK.c.node_key == "two").values(phase="queued", cpu_milli=3000, memory=2**29)
        )
        unit.connection.execute(TASK.update().where(TASK.c.node_key == "three").values(waits_for="two"))
        base = {"run_id": run_id, "task_run_id": task_id(context.database, run_id), "attempt_id": attempt}
        insert_row(unit.connection, OUTPUT, {**base, "name": "accuracy", "kind": "value", "value": 0.97})
        insert_row(
            unit.connection,
            OUTPUT,
            {**base, "name": "model", "kind": "artifact", "path": "p", "size": 3, "media_type": "text/plain"},
        )
        for step in range(3):
            insert_row(
                unit.connection, METRIC, {**base, "name": "loss", "value": 1.0 / (step + 1), "step": step, "at": 5.0}
            )
    found = describe_run(context, PLATFORM, run_id)
    assert (found["phase"], found["priority"], found["params"], found["project"]) == (
        "running",
        "high",
        {"seed": 1},
        "alpha",
    )
    assert found["task_counts"] == {"active": 1, "queued": 1, "blocked": 1}
    one, two, three = found["tasks"]
    assert (one["outputs"], one["artifacts"][0]["name"], one["attempts"][0]["phase"]) == (
        {"accuracy": 0.97},
        "model",
        "released",
    )
    assert two["waiting"] == "needs 3 cpu, there is 1 in all: it can never start here"
    assert three["waiting"] == "waits for task two"
    assert found["outputs"] == {"one": {"accuracy": 0.97}}
    assert found["artifacts"] == [{"task": "one", "name": "model", "path": "p", "size": 3, "media_type": "text/plain"}]
    [metric] = found["metrics"]
    assert (metric["task"], metric["name"], metric["value"], metric["points"]) == (
        "one",
        "loss",
        pytest.approx(1 / 3),
        3,
    )
    assert [m["step"] for m in list_metrics(context, PLATFORM, run_id, name="loss")] == [0, 1, 2]
    finish_task(context.database, run_id, close_run=False)
    done = describe_run(context, PLATFORM, run_id)["tasks"][0]
    assert (done["phase"], done["waiting"], done["attempts"][0]["exit_code"]) == ("succeeded", None, 0)
    assert "tasks" not in read_run(context, PLATFORM, run_id)


def test_a_queued_task_says_what_is_missing(context: Context, projects: dict[str, tuple[int, int]]) -> None:
    project, version = projects["alpha"]
    holder = add_run(context.database, project, version)
    start_task(context.database, holder)
    waiting = add_run(context.database, project, version, ("one", "two"))
    with context.database.write() as unit:
        unit.connection.execute(TASK.update().where(TASK.c.run_id == waiting).values(phase="queued", cpu_milli=2000))

    def reasons() -> list[str]:
        found = describe_run(context, PLATFORM, waiting)
        assert found["waiting"] == found["tasks"][0]["waiting"]
        return [t["waiting"] for t in found["tasks"]]

    assert reasons() == ["waits for a machine: none has reported what it has"] * 2
    add_capacity(context.database, cpu=2000)
    assert reasons() == ["needs 2 cpu, 1 free of 2 (1 held by other runs)"] * 2
    finish_task(context.database, holder)
    other = add_run(context.database, project, version, precedence=-10)
    with context.database.write() as unit:
        unit.connection.execute(TASK.update().where(TASK.c.run_id == other).values(phase="queued", precedence=-10))
    assert reasons()[0] == "waits for its turn: 1 queued task goes first"


def test_tasks_of_a_large_run_come_in_pages(light: Context) -> None:
    project = add_project(light.database, "alpha")
    keys = tuple(f"t{n}" for n in range(250))
    run_id = add_run(light.database, project, add_version(light.database, project), keys)
    found = describe_run(light, PLATFORM, run_id, tasks_limit=100)
    assert (found["task_counts"], len(found["tasks"]), found["next_ordinal"]) == ({"blocked": 250}, 100, 99)
    seen: list[str] = []
    cursor: int | None = -1
    while cursor is not None:
        page, cursor = list_tasks(light, PLATFORM, run_id, after_ordinal=cursor, limit=100)
        seen += [t["key"] for t in page]
    assert seen == list(keys)
    assert list_tasks(light, PLATFORM, run_id, phases=("active",)) == ([], None)


def test_events_resume_after_a_cursor(context: Context, projects: dict[str, tuple[int, int]]) -> None:
    project, version = projects["alpha"]
    run_id = add_run(context.database, project, version)
    start_task(context.database, run_id)
    finish_task(context.database, run_id)
    events = events_after(context, PLATFORM, run_id)
    assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
    assert [(e["entity"], e["task"], e["attempt"]) for e in events[:2]] == [("run", None, None), ("task", "one", None)]
    assert ("attempt", "one", 1, "armed", "released") in [
        (e["entity"], e["task"], e["attempt"], e["from"], e["to"]) for e in events
    ]
    assert [e["final"] for e in events] == [False] * (len(events) - 1) + [True]
    assert events_after(context, PLATFORM, run_id, 4, limit=2) == events[4:6]
    assert events_after(context, PLATFORM, run_id, len(events)) == []


def test_a_log_is_read_while_it_grows_and_after(light: Context) -> None:
    project = add_project(light.database, "alpha")
    run_id = add_run(light.database, project, add_version(light.database, project))
    nothing = {"text": "", "offset": 0, "next_offset": 0, "eof": False, "size": 0, "attempt": None}
    assert read_log(light, PLATFORM, run_id, "one") == nothing
    start_task(light.database, run_id)
    assert read_log(light, PLATFORM, run_id, "one") == nothing | {"attempt": 1}
    file = Path(light.logs.live_dir("alpha", run_id, "one", 1)) / "rank-0.log"
    file.write_bytes("grün".encode()[:3])
    first = read_log(light, PLATFORM, run_id, "one")
    assert (first["text"], first["next_offset"], first["size"], first["eof"]) == ("gr", 2, 3, False)
    file.write_bytes("grün\n".encode())
    second = read_log(light, PLATFORM, run_id, "one", offset=first["next_offset"])
    assert (second["text"], second["eof"]) == ("ün\n", False)
    light.logs.seal("alpha", run_id, "one", 1)
    finish_task(light.database, run_id)
    assert read_log(light, PLATFORM, run_id, "one", offset=second["next_offset"])["eof"] is True
    assert read_log(light, PLATFORM, run_id, "one", offset=-3)["text"] == "\ufffdn\n"
    assert read_log(light, PLATFORM, run_id, "one", offset=10**9) == {
        "text": "",
        "offset": 6,
        "next_offset": 6,
        "eof": True,
        "size": 6,
        "attempt": 1,
    }
    for wrong in ({"task_key": "nosuch"}, {"task_key": "one", "attempt": 2}):
        with pytest.raises(NotFound):
            read_log(light, PLATFORM, run_id, **wrong)


def test_the_log_of_a_carried_task_is_the_one_it_was_carried_from(light: Context) -> None:
    project = add_project(light.database, "alpha")
    version = add_version(light.database, project)
    first = add_run(light.database, project, version)
    start_task(light.database, first)
    (Path(light.logs.live_dir("alpha", first, "one", 1)) / "rank-0.log").write_bytes(b"hello")
    finish_task(light.database, first)
    again = add_run(light.database, project, version)
    with light.database.write() as unit:
        unit.connection.execute(
            TASK.update()
            .where(TASK.c.run_id == again)
            .values(phase="succeeded", carried_from=task_id(light.database, first))
        )
    assert read_log(light, PLATFORM, again, "one")["text"] == "hello"


def test_artifacts_are_read_as_they_were_published(light: Context, tmp_path: Path) -> None:
    project = add_project(light.database, "alpha")
    run_id = add_run(light.database, project, add_version(light.database, project))
    attempt = start_task(light.database, run_id)
    folder = tmp_path / "report"
    (folder / "img").mkdir(parents=True)
    (folder / "index.html").write_text("<p>")
    (folder / "img" / "a.png").write_bytes(b"png")
    (tmp_path / "model.txt").write_text("weights")
    base = {"run_id": run_id, "task_run_id": task_id(light.database, run_id), "attempt_id": attempt, "kind": "artifact"}
    with light.database.write() as unit:
        for name in ("report", "model.txt"):
            kept = light.artifacts.put("alpha", run_id, "one", 1, name, str(tmp_path / name))
            insert_row(
                unit.connection,
                OUTPUT,
                {**base, "name": name, "path": kept.path, "size": kept.size, "media_type": kept.media_type},
            )
    model = read_artifact(light, PLATFORM, run_id, "one", "model.txt")
    assert (model.kind, model.size, model.media_type, b"".join(model.blocks())) == ("file", 7, "text/plain", b"weights")
    report = read_artifact(light, PLATFORM, run_id, "one", "report")
    assert (report.kind, report.filename) == ("folder", "report.zip")
    assert report.entries() == [{"path": "img/a.png", "size": 3}, {"path": "index.html", "size": 3}]
    assert b"".join(read_artifact(light, PLATFORM, run_id, "one", "report", inner="img/a.png").blocks()) == b"png"
    for name, inner in (
        ("nosuch", ""),
        ("model.txt", "x"),
        ("report", "nosuch"),
        ("report", "../model.txt"),
        ("report", "img"),
        ("report", "/etc/passwd"),
        ("report", "img/../index.html"),
        ("report", "img/a.png\0"),
    ):
        with pytest.raises(NotFound):
            read_artifact(light, PLATFORM, run_id, "one", name, inner=inner)
