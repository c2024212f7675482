"""Airflow: API server, scheduler, DAG processor and triggerer on SQLite; LocalExecutor with two slots; BashOperator."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from bench.http import Client, HttpError
from bench.peers.install import install, program, version
from bench.system import Failed, Request, wait_for
from bench.tree import Tree, environment

PORT = 18090
DAGS = """
from datetime import datetime
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

def dag(name):
    return DAG(name, schedule=None, start_date=datetime(2024, 1, 1), catchup=False, max_active_runs=200,
               max_active_tasks=200, is_paused_upon_creation=False)

def task(name):
    return BashOperator(task_id=name, bash_command="/bin/true")

with dag("w1"):
    task("only")
with dag("w2"):
    before = None
    for i in range(20):
        after = task(f"t{i}")
        if before:
            before >> after
        before = after
with dag("w3"):
    task("first") >> [task(f"m{i}") for i in range(50)] >> task("last")
"""


class Airflow:
    name = "airflow"
    stagger_s = 0.0

    def __init__(self, tree: Tree, folder: Path) -> None:
        self.tree = tree
        self._home = folder / "airflow"
        install(tree, self.name)
        self.version = version(tree, self.name)
        self._client = Client(f"http://127.0.0.1:{PORT}")
        self.refused = 0

    def start(self) -> None:
        dags = self._home / "dags"
        dags.mkdir(parents=True)
        (dags / "bench_dags.py").write_text(DAGS)
        url = f"http://127.0.0.1:{PORT}"
        env = environment(
            program(self.name).parent,
            AIRFLOW_HOME=self._home,
            AIRFLOW__CORE__EXECUTOR="LocalExecutor",
            AIRFLOW__CORE__PARALLELISM=2,
            AIRFLOW__CORE__LOAD_EXAMPLES=False,
            AIRFLOW__CORE__DAGS_FOLDER=dags,
            AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS=True,
            AIRFLOW__CORE__EXECUTION_API_SERVER_URL=f"{url}/execution/",
            AIRFLOW__API__HOST="127.0.0.1",
            AIRFLOW__API__PORT=PORT,
            AIRFLOW__API__BASE_URL=url,
            AIRFLOW__API__SECRET_KEY="only-for-this-benchmark",
            AIRFLOW__API_AUTH__JWT_SECRET="only-for-this-benchmark" * 4,
            AIRFLOW__USAGE_DATA_COLLECTION__ENABLED=False,
            AIRFLOW__LOGGING__LOGGING_LEVEL="WARNING",
        )
        airflow = program(self.name, "airflow")
        self.tree.run([airflow, "db", "migrate"], env)
        for part in ("api-server", "scheduler", "dag-processor", "triggerer"):
            self.tree.spawn(f"airflow-{part}", [airflow, part], env)
        token = wait_for(lambda: self._client.get("/auth/token")["access_token"], 240, every=0.2)
        self._client.headers["Authorization"] = f"Bearer {token}"
        wait_for(self._ready, 240, every=0.2)

    def _ready(self) -> bool:
        health = self._client.get("/api/v2/monitor/health")
        parts = ("metadatabase", "scheduler", "dag_processor", "triggerer")
        known = {dag["dag_id"] for dag in self._client.get("/api/v2/dags?limit=10")["dags"]}
        return all(health[part]["status"] == "healthy" for part in parts) and known >= {"w1", "w2", "w3"}

    def submit(self, workload: str) -> Any:
        for _ in range(100):
            try:
                run = self._client.post(f"/api/v2/dags/{workload}/dagRuns", {"logical_date": None})
                return workload, run["dag_run_id"]
            except HttpError as error:  # on SQLite: 500, the database is locked
                if error.status < 500:
                    raise
                self.refused += 1
                time.sleep(0.2)
        raise RuntimeError("a submit was refused 100 times")

    def wait(self, run: Any) -> None:
        workload, run_id = run

        def ended() -> bool:
            state = self._client.get(f"/api/v2/dags/{workload}/dagRuns/{run_id}")["state"]
            if state == "failed":
                raise Failed(f"airflow: run {run_id} failed")
            return bool(state == "success")

        wait_for(ended, 1800, every=0.1)

    def wait_all(self, runs: list[Any]) -> None:
        states = ("queued", "running")
        path = "/api/v2/dags/w1/dagRuns?limit=1&state="
        wait_for(lambda: not any(self._client.get(path + s)["total_entries"] for s in states), 1800, every=0.3)
        self.wait(runs[-1])

    def list_request(self) -> Request:
        path = "/api/v2/dags/~/dagRuns?limit=50&order_by=-run_after"
        return Request(self._client.url, path, headers=self._client.headers)

    def stop(self) -> None:
        self._client.close()
        self.tree.stop()
