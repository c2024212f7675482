"""Cube Studio as a measured system: `cube up` in a home of its own, driven over REST."""

from __future__ import annotations

import re
import secrets
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.http import Client
from bench.system import Failed, Request, wait_for
from bench.tree import Tree, environment

ROOT = Path(__file__).resolve().parent.parent
_READY = re.compile(r"^Cube Studio is ready: (http://\S+)", re.MULTILINE)


class Platform:
    """Every task is /bin/true asking for one of the two CPUs there are: two run at once."""

    name = "cube"
    stagger_s = 0.0

    def __init__(self, tree: Tree, folder: Path) -> None:
        self.tree = tree
        self.home = folder / "home"
        self._log = tree.logs / "cube.log"
        self._password = secrets.token_urlsafe(18)
        self._process: subprocess.Popen[bytes] | None = None
        self._pipelines: dict[str, int] = {}
        self.version = "of this folder"
        self.client = Client("http://127.0.0.1")

    def start(self) -> None:
        self._start()
        for name, document in DOCUMENTS.items():
            self._publish(name, document)

    def restart(self) -> float:
        """Stop, start again on the same home; the seconds from start to ready."""
        self.stop()
        started = time.monotonic()
        self._start()
        return time.monotonic() - started

    def _start(self) -> None:
        self._log.unlink(missing_ok=True)
        settings = {
            "CUBE_HOME": self.home,
            "CUBE_PORT": 0,
            "CUBE_SAMPLE": "false",
            "CUBE_LOCAL_CPU": 2,
            "CUBE_ADMIN_PASSWORD": self._password,
        }
        python = Path(sys.executable)
        argv: list[str | Path] = [python, "-m", "myapp.cli", "up"]
        self._process = self.tree.spawn("cube", argv, environment(python.parent, **settings), ROOT)
        url = wait_for(self._url, 120, every=0.01)
        self.client.close()
        self.client = Client(f"{url}/api/v1")
        token = self.client.post("/security/login", {"username": "admin", "password": self._password})["access_token"]
        self.client.headers["Authorization"] = f"Bearer {token}"

    def _url(self) -> str | None:
        found = _READY.search(self._log.read_text())
        if found is None and self._process is not None and self._process.poll() is not None:
            raise Failed(f"the platform did not start: {self._log.read_text()[-2000:]}")
        return found[1] if found else None

    def _publish(self, name: str, document: dict[str, Any]) -> None:
        self._pipelines[name] = self.client.post("/pipeline/", document)["id"]

    def add_fan(self, tasks: int) -> str:
        """Publish 1 -> tasks - 2 -> 1; the name of this workload."""
        name = f"fan-{tasks}"
        self._publish(name, fan(name, tasks))
        return name

    def submit(self, workload: str) -> int:
        return int(self.client.post(f"/pipeline/{self._pipelines[workload]}/run", {"params": {}})["id"])

    def wait(self, run: int) -> None:
        """Follows the run's event stream (no polling), then asks once for the run itself."""
        follower = Client(self.client.url, self.client.headers)
        try:
            for event, data in follower.events(f"/run/{run}/events"):
                if event == "end" or (event == "transition" and data.get("final")):
                    break
        finally:
            follower.close()
        phase = self.client.get(f"/run/{run}?tasks_limit=0")["result"]["phase"]
        if phase != "succeeded":
            raise Failed(f"run {run} is {phase}")

    def wait_all(self, runs: list[int]) -> None:
        self.wait(runs[-1])  # first come, first served: hardly any is left then
        wait_for(lambda: self.unfinished() == 0, 120, every=0.02)

    def list_request(self) -> Request:
        return Request(self.client.url, "/run/?page_size=50", headers=self.client.headers)

    def submit_request(self) -> Request:
        path = f"/pipeline/{self._pipelines['w1']}/run"
        return Request(self.client.url, path, "POST", self.client.headers, {"params": {}})

    def unfinished(self) -> int:
        return sum(int(self.client.get(f"/run/?page_size=1&phase={phase}")["count"]) for phase in ("queued", "running"))

    def stop(self) -> None:
        self.client.close()
        self.tree.stop(self._process)
        self._process = None


def _pipeline(name: str, tasks: list[dict[str, Any]]) -> dict[str, Any]:
    job = {"framework": "shell", "command": ["/bin/true"], "resources": {"cpu": 1, "memory": "64Mi"}}
    return {
        "apiVersion": "cube-studio.io/v1alpha1",
        "kind": "Pipeline",
        "metadata": {"name": name, "project": "public"},
        "spec": {"tasks": [{"job": job, **task} for task in tasks]},
    }


def chain(name: str, tasks: int) -> dict[str, Any]:
    return _pipeline(name, [{"name": f"t{i}", "dependsOn": [f"t{i - 1}"] if i else []} for i in range(tasks)])


def fan(name: str, tasks: int) -> dict[str, Any]:
    """One task, `tasks` - 2 that depend on it, one that depends on them all."""
    middle = [f"m{i}" for i in range(tasks - 2)]
    nodes: list[dict[str, Any]] = [{"name": "first"}, *({"name": key, "dependsOn": ["first"]} for key in middle)]
    return _pipeline(name, [*nodes, {"name": "last", "dependsOn": middle or ["first"]}])


DOCUMENTS = {"w1": chain("w1", 1), "w2": chain("w2", 20), "w3": fan("w3", 52)}
