"""Luigi: its scheduler, and its command line with two workers. No history, no database, no submits: a run is a command,
and succeeded when that ends. Runs at once: two commands at a time."""

from __future__ import annotations

import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.http import Client
from bench.peers.install import install, program, version
from bench.system import TASKS, Request, wait_for
from bench.tree import Tree, environment

PORT = 18092
ALL_DONE = "/api/task_list?data=%7B%22status%22%3A%22DONE%22%2C%22upstream_status%22%3A%22%22%7D"
MODULE = """
import luigi
from luigi.contrib.external_program import ExternalProgramTask

class Base(ExternalProgramTask):
    run_id = luigi.Parameter()
    i = luigi.IntParameter(default=0)
    capture_output = False

    def program_args(self):
        return ["/bin/true"]

    def output(self):
        return luigi.LocalTarget(f"out/{self.run_id}/{type(self).__name__}_{self.i}")

    def run(self):
        super().run()
        with self.output().open("w"):
            pass

class W1(Base):
    pass

class W2(Base):
    i = luigi.IntParameter(default=19)

    def requires(self):
        return [W2(run_id=self.run_id, i=self.i - 1)] if self.i else []

class First(Base):
    pass

class Middle(Base):
    def requires(self):
        return [First(run_id=self.run_id)]

class W3(Base):
    def requires(self):
        return [Middle(run_id=self.run_id, i=i) for i in range(50)]
"""


class Luigi:
    name = "luigi"
    stagger_s = 0.0

    def __init__(self, tree: Tree, folder: Path) -> None:
        self.tree = tree
        self._home = folder / "luigi"
        install(tree, self.name)
        self.version = version(tree, self.name)
        self._client = Client(f"http://127.0.0.1:{PORT}")
        self._env: dict[str, str] = {}
        self._two = ThreadPoolExecutor(2)

    def start(self) -> None:
        self._home.mkdir()
        (self._home / "bench_tasks.py").write_text(MODULE)
        settings = self._home / "luigi.cfg"
        settings.write_text("[core]\nno_configure_logging=true\n[scheduler]\nrecord_task_history=false\n")
        self._env = environment(program(self.name).parent, PYTHONPATH=self._home, LUIGI_CONFIG_PATH=settings)
        argv: list[str | Path] = [program(self.name, "luigid"), "--address", "127.0.0.1", "--port", str(PORT)]
        argv += ["--state-path", self._home / "state", "--logdir", self._home]
        self.tree.spawn("luigi", argv, self._env, cwd=self._home)
        wait_for(lambda: self._client.get(ALL_DONE), 60)

    def submit(self, workload: str) -> Any:
        return self._two.submit(self._run, workload)

    def _run(self, workload: str) -> None:
        run_id = uuid.uuid4().hex
        argv: list[str | Path] = [
            program(self.name, "luigi"),
            "--module",
            "bench_tasks",
            workload.upper(),
            "--run-id",
            run_id,
        ]
        argv += ["--workers", "2", "--scheduler-host", "127.0.0.1", "--scheduler-port", str(PORT)]
        self.tree.run(argv, self._env, cwd=self._home)
        done = len(list((self._home / "out" / run_id).iterdir()))
        if done != TASKS[workload]:
            raise RuntimeError(f"luigi did {done} of {TASKS[workload]} tasks")

    def wait(self, run: Future[None]) -> None:
        run.result()

    def wait_all(self, runs: list[Any]) -> None:
        for run in runs:
            self.wait(run)

    def list_request(self) -> Request:
        return Request(self._client.url, ALL_DONE)

    def stop(self) -> None:
        self._client.close()
        self._two.shutdown(cancel_futures=True)
        self.tree.stop()
