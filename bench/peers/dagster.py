"""Dagster: `dagster dev` (web server, daemon, code server), two steps and two runs at once; every step is a process,
its body empty. As shipped a step is a new interpreter and the queue is looked at every five
seconds; tuned, steps are forked and it is looked at every second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.http import Client
from bench.peers.install import install, program, version
from bench.system import Failed, Request, wait_for
from bench.tree import Tree, environment

PORT = 13090
DEFINITIONS = """
from dagster import Definitions, In, Nothing, job, multiprocess_executor, op

executor = multiprocess_executor.configured({"max_concurrent": 2, "start_method": {"START_METHOD": {}}})

@op
def first():
    pass

@op(ins={"after": In(Nothing)})
def true():
    pass

@job(executor_def=executor)
def w1():
    first()

@job(executor_def=executor)
def w2():
    last = first()
    for i in range(19):
        last = true.alias(f"t{i}")(last)

@job(executor_def=executor)
def w3():
    start = first()
    true.alias("last")([true.alias(f"m{i}")(start) for i in range(50)])

defs = Definitions(jobs=[w1, w2, w3])
"""
SETTINGS = """
telemetry:
  enabled: false
run_queue:
  max_concurrent_runs: 2
"""
READY = """{
  repositoriesOrError { ... on RepositoryConnection { nodes { name location { name } } } }
  instance { daemonHealth { allDaemonStatuses { healthy required } } }
}"""
LAUNCH = """mutation($p: ExecutionParams!) { launchRun(executionParams: $p) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""
STATUS = "query($i: ID!) { runOrError(runId: $i) { ... on Run { status } } }"
OPEN = """{ runsOrError(filter: {statuses: [QUEUED, NOT_STARTED, STARTING, STARTED]}, limit: 1) {
  ... on Runs { count } } }"""
LIST = "{ runsOrError(limit: 50) { ... on Runs { results { runId status jobName startTime endTime } } } }"


class Dagster:
    def __init__(self, tree: Tree, folder: Path, *, tuned: bool = False) -> None:
        self.tree = tree
        self.name = "dagster-tuned" if tuned else "dagster"
        self.stagger_s = 0.0 if tuned else 5.0
        self._tuned = tuned
        self._home = folder / self.name
        install(tree, "dagster")
        self.version = version(tree, "dagster")
        self._client = Client(f"http://127.0.0.1:{PORT}")
        self._repository: dict[str, Any] = {}

    def start(self) -> None:
        home = self._home / "home"
        home.mkdir(parents=True)
        (home / "dagster.yaml").write_text(SETTINGS + ("  dequeue_interval_seconds: 1\n" if self._tuned else ""))
        file = self._home / "bench_jobs.py"
        file.write_text(DEFINITIONS.replace("START_METHOD", "forkserver" if self._tuned else "spawn"))
        env = environment(program("dagster").parent, DAGSTER_HOME=home, DAGSTER_DISABLE_TELEMETRY=1)
        argv: list[str | Path] = [program("dagster", "dagster"), "dev", "-f", file, "-h", "127.0.0.1", "-p", str(PORT)]
        self.tree.spawn("dagster", argv, env, cwd=self._home)
        self._repository = wait_for(self._ready, 240, every=0.2)

    def _query(self, query: str, **variables: Any) -> Any:
        answer = self._client.post("/graphql", {"query": query, "variables": variables})
        if answer.get("errors"):
            raise RuntimeError(str(answer["errors"])[:500])
        return answer["data"]

    def _ready(self) -> Any:
        data = self._query(READY)
        daemons = data["instance"]["daemonHealth"]["allDaemonStatuses"]
        found = data["repositoriesOrError"]["nodes"]
        return found[0] if found and all(d["healthy"] for d in daemons if d["required"]) else None

    def submit(self, workload: str) -> Any:
        selector = {
            "repositoryLocationName": self._repository["location"]["name"],
            "repositoryName": self._repository["name"],
            "jobName": workload,
        }
        answer = self._query(LAUNCH, p={"selector": selector, "runConfigData": {}})["launchRun"]
        if "run" not in answer:
            raise RuntimeError(f"dagster did not launch {workload}: {answer}")
        return answer["run"]["runId"]

    def wait(self, run: Any) -> None:
        def ended() -> bool:
            status = self._query(STATUS, i=run)["runOrError"]["status"]
            if status in ("FAILURE", "CANCELED"):
                raise Failed(f"dagster: run {run} is {status}")
            return bool(status == "SUCCESS")

        wait_for(ended, 2400, every=0.1)

    def wait_all(self, runs: list[Any]) -> None:
        wait_for(lambda: self._query(OPEN)["runsOrError"]["count"] == 0, 2400, every=0.3)
        self.wait(runs[-1])

    def list_request(self) -> Request:
        return Request(self._client.url, "/graphql", "POST", data={"query": LIST})

    def stop(self) -> None:
        self._client.close()
        self.tree.stop()
