"""Redis away, Redis emptied, the database away, the database locked: runs go on or wait, and nothing is lost."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests import databases
from tests.crash.harness import (
    Home,
    Parts,
    all_succeeded,
    keys,
    logs_of,
    outage_s,
    parts,
    pipeline,
    task,
    tree,
    until,
)
from tests.crash.postgres import Postgres

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900), pytest.mark.xdist_group("crash-outages")]

CHAINS = [
    *(task(f"a-{i}", seconds=0.3) for i in range(10)),
    *(task(f"b-{i}", f"a-{i}", seconds=0.5) for i in range(10)),
    *(task(f"c-{i}", f"b-{i}", seconds=0.5) for i in range(10)),
    task("end", *(f"c-{i}" for i in range(10))),
]
FEW = [task("x"), task("y", "x")]


@pytest.fixture(scope="module")
def cube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parts]:
    with parts(tmp_path_factory.mktemp("outages")) as started:
        yield started


def submit_chains(cube: Home, key: str, ran: int = 12) -> int:
    """A run of CHAINS, some of its tasks started."""
    run_id = cube.api.start(cube.api.publish(pipeline("chains", CHAINS)), key)
    until(lambda: len(cube.witness.ran(run_id)) >= ran)
    return run_id


def check(cube: Home, run_id: int, names: list[str]) -> None:
    all_succeeded(cube.api.ended(run_id, 180))
    cube.witness.exactly_once(run_id, names)


@pytest.mark.parametrize("how", ["frozen", "killed"])
def test_without_redis_submits_are_accepted_and_nothing_is_lost(cube: Parts, how: str) -> None:
    run_id = submit_chains(cube, f"redis-{how}")
    few = cube.api.publish(pipeline("few", FEW))
    before = dict(cube.api.statuses)
    if how == "frozen":
        cube.redis.signal(signal.SIGSTOP)
    else:
        cube.redis.kill()
    back_at = time.monotonic() + outage_s(5)
    submitted: list[int] = []
    while time.monotonic() < back_at:
        submitted.append(cube.api.start(few, f"redis-{how}-{len(submitted)}"))
        assert cube.api.run(run_id)["id"] == run_id
        time.sleep(1)
    if how == "frozen":
        cube.redis.signal(signal.SIGCONT)
    else:
        cube.redis.start()
    check(cube, run_id, keys(CHAINS))
    assert len(submitted) > 1
    for one in submitted:
        check(cube, one, keys(FEW))
    assert set(cube.api.statuses) - set(before) <= {200, 202}
    assert {name: process.poll() for name, process in cube.running.items()} == dict.fromkeys(cube.running)
    assert cube.api.server_errors() == {}
    assert cube.doctor() == []


def test_redis_dying_under_a_busy_worker_takes_nobody_along(cube: Parts) -> None:
    """Messages are being taken and answered at the moment of its death, several times."""
    tasks = [task(f"busy-{i}", seconds=0.02) for i in range(150)]
    run_id = cube.api.start(cube.api.publish(pipeline("busy", tasks)), "busy")
    for finished in (10, 50, 90):
        until(lambda finished=finished: len(cube.witness.finished(run_id)) >= finished)  # type: ignore[misc]
        cube.redis.kill()
        cube.redis.start()
    check(cube, run_id, keys(tasks))
    assert {name: process.poll() for name, process in cube.running.items()} == dict.fromkeys(cube.running)


def test_an_emptied_redis_loses_nothing(cube: Parts) -> None:
    run_id = submit_chains(cube, "flushed", ran=1)
    others = []
    few = cube.api.publish(pipeline("few", FEW))
    for number in range(20):
        others.append(cube.api.start(few, f"flushed-{number}"))
        assert cube.redis.say("FLUSHALL") == b"+OK"
        time.sleep(0.1)
    check(cube, run_id, keys(CHAINS))
    for one in others:
        check(cube, one, keys(FEW))
    assert cube.doctor() == []


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    folder = Path(tempfile.mkdtemp(prefix="cube-pg-"))
    folder.chmod(0o711)
    try:
        server = Postgres(folder)
    except databases.NotInstalled as error:
        shutil.rmtree(folder)
        pytest.skip(str(error))
    server.start()
    yield server
    server.stop()
    shutil.rmtree(folder, ignore_errors=True)


def test_the_database_stopped_in_the_middle_of_a_run(tmp_path: Path, postgres: Postgres) -> None:
    """Jobs go on, the API says 503 and to come again, and afterwards the run goes on by itself."""
    with parts(tmp_path, database_url=postgres.url) as cube:
        run_id = submit_chains(cube, "database")
        few = cube.api.publish(pipeline("few", FEW))
        running = dict(cube.witness.ran(run_id))
        postgres.stop()
        back_at = time.monotonic() + outage_s(5)
        answers = set()
        while time.monotonic() < back_at:
            for method, path in (("GET", "/run/"), ("GET", f"/run/{run_id}"), ("POST", f"/pipeline/{few}/run")):
                answers.add(cube.api.call(method, path, {} if method == "POST" else None)[0])
            time.sleep(0.5)
        assert answers == {503}
        finished = cube.witness.finished(run_id)
        assert set(running) <= set(finished)
        postgres.start()
        submitted = cube.api.start(few, "database-after")
        check(cube, run_id, keys(CHAINS))
        check(cube, submitted, keys(FEW))
        assert set(cube.api.server_errors()) == {503}
        assert cube.api.patiently("GET", "/run/")["count"] == 2
        assert cube.doctor() == []
        assert all(process.poll() is None for process in cube.running.values())


def test_a_locked_sqlite_database_makes_everybody_wait_and_nobody_fail(tmp_path: Path) -> None:
    """Somebody else's program holds the write lock for some seconds."""
    with tree(tmp_path) as cube:
        run_id = submit_chains(cube, "locked", ran=5)
        few = cube.api.publish(pipeline("few", FEW))
        locked = threading.Event()

        def hold() -> None:
            stranger = sqlite3.connect(cube.home / "cube.db", isolation_level=None, timeout=60)
            stranger.execute("BEGIN EXCLUSIVE")
            locked.set()
            time.sleep(min(outage_s(5), 30.0))  # SQLite itself waits for a minute at most
            stranger.execute("ROLLBACK")
            stranger.close()

        def submit(number: int) -> int:
            status, answer = cube.api.call("POST", f"/pipeline/{few}/run", {}, Idempotency_Key=f"locked-{number}")
            assert status == 202, answer
            return int(answer["id"])

        with ThreadPoolExecutor(12) as pool:
            held = pool.submit(hold)
            locked.wait()
            submits = [pool.submit(submit, number) for number in range(10)]
            while not held.done():
                assert cube.api.call("GET", f"/run/{run_id}")[0] == 200
                time.sleep(0.2)
            submitted = [one.result() for one in submits]
            held.result()
        assert len(set(submitted)) == 10
        check(cube, run_id, keys(CHAINS))
        for one in submitted:
            check(cube, one, keys(FEW))
        assert cube.api.server_errors() == {}
        assert "database is locked" not in logs_of(cube.home)
        assert cube.doctor() == []
