"""Prefect: its server on SQLite, a process work pool and a worker of two; tasks in a pool of two threads, each starting
/bin/true. As shipped the worker asks for work every ten seconds; tuned, every second."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from bench.http import Client, HttpError
from bench.peers.install import install, program, version
from bench.system import Failed, Request, wait_for
from bench.tree import Tree, environment

PORT = 14290
FLOWS = """
import subprocess
from prefect import flow, task
from prefect.task_runners import ThreadPoolTaskRunner

@task
def true(*after):
    subprocess.run(["/bin/true"], check=True)

@flow
def w1():
    true()

@flow
def w2():
    last = true.submit()
    for _ in range(19):
        last = true.submit(last)
    last.wait()

@flow(task_runner=ThreadPoolTaskRunner(max_workers=2))
def w3():
    first = true.submit()
    true.submit([true.submit(first) for _ in range(50)]).wait()
"""
DEPLOY = """
import sys
from prefect import flow

for name in ("w1", "w2", "w3"):
    flow.from_source(source=sys.argv[1], entrypoint=f"bench_flows.py:{name}").deploy(
        name="bench", work_pool_name="bench", build=False, push=False, print_next_steps=False)
"""


class Prefect:
    def __init__(self, tree: Tree, folder: Path, *, tuned: bool = False) -> None:
        self.tree = tree
        self.name = "prefect-tuned" if tuned else "prefect"
        self.stagger_s = 0.0 if tuned else 10.0
        self._tuned = tuned
        self._home = folder / self.name
        install(tree, "prefect")
        self.version = version(tree, "prefect")
        self._client = Client(f"http://127.0.0.1:{PORT}/api")
        self._deployments: dict[str, str] = {}
        self.refused = 0

    def start(self) -> None:
        source = self._home / "source"
        source.mkdir(parents=True)
        (source / "bench_flows.py").write_text(FLOWS)
        (source / "deploy.py").write_text(DEPLOY)
        env = environment(
            program("prefect").parent,
            PREFECT_HOME=self._home,
            PREFECT_API_URL=f"http://127.0.0.1:{PORT}/api",
            PREFECT_SERVER_ANALYTICS_ENABLED=False,
            PREFECT_LOGGING_LEVEL="WARNING",
            **({"PREFECT_WORKER_QUERY_SECONDS": 1} if self._tuned else {}),
        )
        prefect = program("prefect", "prefect")
        server: list[str | Path] = [prefect, "server", "start", "--host", "127.0.0.1", "--port", str(PORT)]
        self.tree.spawn("prefect-server", server, env)
        wait_for(lambda: self._client.get("/health"), 180, every=0.2)
        self.tree.run([prefect, "work-pool", "create", "bench", "--type", "process"], env)
        worker: list[str | Path] = [prefect, "worker", "start", "--pool", "bench", "--limit", "2", "--name", "bench"]
        self.tree.spawn("prefect-worker", worker, env)
        wait_for(self._worker_online, 180, every=0.2)
        self.tree.run([program("prefect"), source / "deploy.py", source], env, cwd=self._home)
        for name in ("w1", "w2", "w3"):
            self._deployments[name] = self._client.get(f"/deployments/name/{name}/bench")["id"]

    def _worker_online(self) -> bool:
        workers = self._client.post("/work_pools/bench/workers/filter", {})
        return any(worker["status"] == "ONLINE" for worker in workers)

    def submit(self, workload: str) -> Any:
        for _ in range(100):
            try:
                return self._client.post(f"/deployments/{self._deployments[workload]}/create_flow_run", {})["id"]
            except HttpError as error:  # on SQLite: 503 under load
                if error.status < 500:
                    raise
                self.refused += 1
                time.sleep(0.2)
        raise RuntimeError("a submit was refused 100 times")

    def wait(self, run: Any) -> None:
        def ended() -> bool:
            state = self._client.get(f"/flow_runs/{run}")["state_type"]
            if state in ("FAILED", "CRASHED", "CANCELLED"):
                raise Failed(f"prefect: run {run} is {state}")
            return bool(state == "COMPLETED")

        wait_for(ended, 1800, every=0.1)

    def wait_all(self, runs: list[Any]) -> None:
        open_states = {"flow_runs": {"state": {"type": {"any_": ["SCHEDULED", "PENDING", "RUNNING"]}}}}
        wait_for(lambda: self._client.post("/flow_runs/count", open_states) == 0, 1800, every=0.3)
        self.wait(runs[-1])

    def list_request(self) -> Request:
        return Request(self._client.url, "/flow_runs/filter", "POST", data={"limit": 50, "sort": "START_TIME_DESC"})

    def stop(self) -> None:
        self._client.close()
        self.tree.stop()
