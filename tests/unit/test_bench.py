"""The benchmark's own arithmetic, and that what it writes by SQL is what the platform would have written."""

from __future__ import annotations

import http.server
import json
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from bench import report
from bench.http import Client, HttpError, load, percentile
from bench.platform import DOCUMENTS, fan
from bench.rows import add_runs
from bench.system import TASKS, noise
from bench.tree import read_process
from myapp.models import Base


@pytest.mark.parametrize(
    ("percent", "value"), [(0, 1.0), (50, 3.0), (95, 5.0), (100, 5.0)], ids=["least", "median", "95", "most"]
)
def test_percentile(percent: float, value: float) -> None:
    assert percentile([5.0, 1.0, 3.0, 2.0, 4.0], percent) == value


def test_noise_is_the_share_of_two_processors() -> None:
    assert noise(1.0, 2.0) == 0.25
    assert noise(0.0, 0.0) == 0.0


@pytest.mark.parametrize("name", DOCUMENTS)
def test_documents_have_the_tasks_they_are_counted_for(name: str) -> None:
    assert len(DOCUMENTS[name]["spec"]["tasks"]) == TASKS[name]


def test_a_fan_joins_all_its_middle() -> None:
    first, *middle, last = fan("f", 5)["spec"]["tasks"]
    assert "dependsOn" not in first
    assert [task["dependsOn"] for task in middle] == [["first"]] * 3
    assert last["dependsOn"] == [task["name"] for task in middle]


class _Server(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/events":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for text in (b"retry: 1\n\nid: 1\nevent: x\nda", b'ta: {"n": 1}\n\n', b"event: end\ndata: {}\n\n"):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(text), text))
            self.wfile.write(b"0\r\n\r\n")
            return
        body = b'{"path": "%s"}' % self.path.encode()
        self.send_response(404 if self.path == "/missing" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        return None


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Server) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_client_keeps_its_connection_and_reads_streams(url: str) -> None:
    client = Client(url)
    assert [client.get(path)["path"] for path in ("/a", "/b")] == ["/a", "/b"]
    with pytest.raises(HttpError, match="404"):
        client.get("/missing")
    assert client.get("/c")["path"] == "/c"
    assert list(client.events("/events")) == [("x", {"n": 1}), ("end", {})]
    client.close()


def test_load_measures_every_request(url: str) -> None:
    assert len(load(url, {}, "GET", "/a", None, requests=12, clients=3)) == 12
    with pytest.raises(HttpError):
        load(url, {}, "GET", "/missing", None, requests=2, clients=2)


def test_cpu_of_ended_and_orphaned_descendants_counts(tmp_path: Path) -> None:
    """In a process of its own: it becomes a sub-reaper. The grandchild outlives its parent and burns CPU."""
    burn = "sum(range(6_000_000))"
    code = f"""
import subprocess, sys, time
from pathlib import Path
from bench.tree import Meter, Tree
tree = Tree(Path({str(tmp_path)!r}))
grandchild = "import subprocess, sys; subprocess.Popen([sys.executable, '-S', '-c', '{burn}'])"
with Meter(tree) as meter:
    tree.run([sys.executable, "-S", "-c", grandchild], {{}})
    while tree.processes():
        tree.cpu()
        time.sleep(0.01)
print(meter.cpu)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    alone = subprocess.run(
        [sys.executable, "-S", "-c", f"import time; {burn}; print(time.process_time())"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert float(done.stdout) > float(alone.stdout) / 2


def test_processes_that_are_gone_are_none() -> None:
    assert read_process(2**22 + 1) is None


def test_copied_runs_fit_the_schema(tmp_path: Path) -> None:
    path = tmp_path / "cube.db"
    engine = create_engine(f"sqlite:///{path}")
    Base.metadata.create_all(engine)
    engine.dispose()
    with sqlite3.connect(path) as connection:
        for table, known in (
            ("run", {"id": 1, "project_id": 1, "phase": "succeeded", "name": "w1"}),
            ("task_run", {"id": 1, "run_id": 1, "phase": "succeeded", "node_key": "t"}),
            ("attempt", {"id": 1, "run_id": 1, "task_run_id": 1, "phase": "succeeded", "object_name": "w1-t"}),
        ):
            required = {
                row[1]: "" if "CHAR" in row[2] or "TEXT" in row[2] else 0
                for row in connection.execute(f"PRAGMA table_info({table})")
                if row[3] and row[1] != "id"
            }
            values = required | known
            marks = ", ".join("?" * len(values))
            connection.execute(f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})", list(values.values()))
    connection.close()
    add_runs(path, 1, 120)
    with sqlite3.connect(path) as connection:
        joined = connection.execute(
            "SELECT count(*) FROM run JOIN task_run ON task_run.run_id = run.id"
            " JOIN attempt ON attempt.task_run_id = task_run.id AND attempt.run_id = run.id"
        ).fetchone()[0]
        following = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'run'").fetchone()[0]
    connection.close()
    assert (joined, following) == (121, 121)


def test_report_compares_with_the_best_of_the_three() -> None:
    systems = {
        "cube": {"version": "x", "w1": {"wall_s": 0.1, "noise": 0.5}},
        "airflow": {"version": "3", "w1": {"wall_s": 4.0}},
        "dagster": {"version": "1", "w1": {"wall_s": 2.0}},
        "prefect": {"version": "3", "failed": "it did not start"},
        "luigi": {"version": "3", "w1": {"wall_s": 0.5}},
    }
    results = json.loads(json.dumps({"systems": systems, "size": "quick", "at": "now", "machine": {}}))
    assert report.ratio(systems, ("w1", "wall_s")) == "20.0"
    text = report.table(results)
    row = next(line for line in text.splitlines() if line.startswith("| one-task run "))
    assert [cell.strip() for cell in row.split("|")[3:-1]] == ["0.10 s ~", "4.00 s", "-", "2.00 s", "0.50 s", "20.0"]
    assert "prefect failed: it did not start" in text
