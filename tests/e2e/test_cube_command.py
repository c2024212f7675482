"""The `cube` command against the real platform."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.platform import Platform, job, until

pytestmark = pytest.mark.e2e

PIPELINE = """\
apiVersion: cube-studio.io/v1alpha1
kind: Pipeline
metadata: {name: greet, project: public, title: Says hello}
spec:
  params:
    - {name: word, type: str, default: hello}
    - {name: times, type: int, default: 1, min: 1, max: 3}
  tasks:
    - name: say
      template: shell
      args: {command: 'for i in $(seq {{ params.times }}); do echo "{{ params.word }}"; done'}
    - name: check
      template: shell
      args: {command: 'test "{{ params.word }}" != wrong'}
      dependsOn: [say]
"""


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with Platform(tmp_path_factory.mktemp("e2e") / "var") as started:
        applied = started.cube("apply", "-f", "-", stdin=PIPELINE)
        assert (applied.returncode, applied.stdout) == (0, "Pipeline greet created (version 1)\n"), applied.stderr
        yield started


def test_documents_are_created_then_unchanged_then_updated(platform: Platform) -> None:
    documents = PIPELINE.replace("name: greet", "name: applied") + "---\n" + job("once", ["true"])
    first = platform.cube("apply", "-f", "-", stdin=documents)
    assert first.returncode == 0
    assert first.stdout.startswith("Pipeline applied created (version 1)\nAIJob once submitted as run ")
    again = platform.cube("apply", "-f", "-", stdin=documents.partition("---")[0])
    assert again.stdout == "Pipeline applied unchanged (version 1)\n"
    changed = platform.cube("apply", "-f", "-", stdin=documents.partition("---")[0].replace("max: 3", "max: 4"))
    assert changed.stdout == "Pipeline applied updated (version 2)\n"


def test_what_is_wrong_is_said_with_its_line_and_the_rest_is_applied(platform: Platform) -> None:
    wrong = PIPELINE.replace("name: greet", "name: wrong").replace("template: shell", "template: shel", 1)
    done = platform.cube("apply", "-f", "-", stdin=wrong + "---\n" + PIPELINE)
    assert done.returncode == 1
    assert done.stdout == "Pipeline greet unchanged (version 1)\n"
    assert "Pipeline wrong" in done.stderr
    assert "shell" in done.stderr
    checked = platform.json("validate", "-f", "-", stdin="# comment\n---\n" + PIPELINE)
    assert checked == [{"source": "standard input", "kind": "Pipeline", "name": "greet", "problems": []}]
    bad = platform.cube("validate", "-f", "-", "--json", stdin="# comment\n---\n" + wrong)
    problem = json.loads(bad.stdout)[0]["problems"][0]
    assert (bad.returncode, problem["field"], problem["line"]) == (1, "spec.tasks[0].template", 12)


def test_a_run_is_started_waited_for_and_described(platform: Platform) -> None:
    done = platform.cube("run", "greet", "-p", "word=007", "-p", "times=2", "--wait")
    assert done.returncode == 0, done.stderr
    run = done.stdout.split()[1]
    assert done.stdout.startswith(f"run {run} succeeded in ")
    assert "say  succeeded" in done.stderr
    assert platform.cube("logs", run, "say").stdout == "007\n007\n"
    assert platform.cube("logs", run, "say", "-f").stdout == "007\n007\n"
    shown = platform.cube("describe", "run", run).stdout
    assert "succeeded" in shown
    assert '{"word": "007", "times": 2}' in shown
    assert [row["id"] for row in platform.json("get", "runs", "--pipeline", "greet", "--limit", "1")["result"]] == [
        int(run)
    ]


def test_a_run_that_fails_is_an_exit_code(platform: Platform) -> None:
    done = platform.cube("run", "public/greet", "-p", "word=wrong", "--wait")
    assert done.returncode == 1
    run = done.stdout.split()[1]
    assert f"run {run} failed" in done.stdout
    assert f"cube logs {run} check" in done.stderr
    again = platform.cube("retry", run, "--wait", "--json")
    assert again.returncode == 1
    tasks = {task["key"]: task for task in json.loads(again.stdout)["tasks"]}
    assert tasks["say"]["carried_from"] is not None
    assert tasks["check"]["carried_from"] is None


@pytest.mark.parametrize(
    ("argv", "exit_code", "said"),
    [
        (["run", "nothing"], 1, "there is no pipeline nothing"),
        (["run", "greet", "-p", "times=9"], 1, "times"),
        (["run", "greet", "-p", "tims=1"], 1, "tims"),
        (["run", "greet", "-p", "times"], 2, "not name=value"),
        (["describe", "run", "999999"], 1, "not found"),
        (["logs", "999999"], 1, "not found"),
        (["cancel", "seven"], 2, "not a run"),
        (["describe", "template", "nothing"], 1, "no job template"),
        (["get", "runs", "--project", "nothing", "--url", "http://127.0.0.1:9"], 3, "cannot be reached"),
    ],
)
def test_errors_go_to_stderr_with_a_code(platform: Platform, argv: list[str], exit_code: int, said: str) -> None:
    done = platform.cube(*argv)
    assert (done.returncode, done.stdout) == (exit_code, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("kind", ["runs", "pipelines", "templates", "projects"])
def test_lists(platform: Platform, kind: str) -> None:
    assert platform.cube("get", kind).returncode == 0
    listed = platform.json("get", kind)
    assert listed["count"] == len(listed["result"])


def test_details(platform: Platform) -> None:
    assert "shell" in platform.cube("describe", "pipeline", "greet").stdout
    assert "command" in platform.cube("describe", "template", "shell").stdout
    assert "public" in platform.cube("describe", "project", "public").stdout


def test_login_with_password_and_token(platform: Platform, tmp_path: Path) -> None:
    password = (platform.home / "admin-password").read_text().strip()
    elsewhere = {"HOME": str(tmp_path), "CUBE_HOME": str(tmp_path / "nothing")}
    assert platform.cube("whoami", "--url", platform.url, **elsewhere).returncode == 4
    wrong = platform.cube("login", platform.url, stdin="admin\nwrong-password\n", **elsewhere)
    assert (wrong.returncode, wrong.stdout) == (4, "")
    right = platform.cube("login", platform.url, stdin=f"admin\n{password}\n", **elsewhere)
    assert right.returncode == 0, right.stderr
    assert password not in right.stdout + right.stderr
    assert platform.cube("whoami", **elsewhere).stdout == f"admin at {platform.url}\n"
    kept = json.loads((tmp_path / ".config" / "cube-studio" / "login.json").read_text())
    token = kept["servers"][platform.url]["token"]
    fresh = {"HOME": str(tmp_path / "other"), "CUBE_HOME": str(tmp_path / "nothing")}
    assert platform.cube("login", platform.url, "--token", "-", stdin=token, **fresh).returncode == 0
    assert platform.cube("whoami", **fresh).returncode == 0
    assert platform.cube("whoami", CUBE_URL=platform.url, CUBE_TOKEN="nonsense").returncode == 4


def test_a_running_task_is_followed_and_cancelled(platform: Platform) -> None:
    script = "echo started; sleep 600"
    run = platform.json("apply", "-f", "-", stdin=job("long", ["sh", "-c", script]))[0]["id"]
    until(lambda: platform.cube("logs", str(run)).stdout == "started\n")
    assert platform.cube("cancel", str(run), "--reason", "enough", "--wait").stdout == f"run {run} is stopped\n"
    followed = platform.cube("logs", str(run), "-f")
    assert followed.stdout.startswith("started\n")


def test_the_doctor_finds_all_well(platform: Platform) -> None:
    done = platform.cube("doctor")
    assert done.returncode == 0, done.stdout
    findings = {finding["name"]: finding["state"] for finding in platform.json("doctor")}
    assert {findings[f"I{number}"] for number in range(1, 7)} == {"ok"}
    assert findings["platform"] == "ok"


def test_the_catalogue_and_the_schema_are_up_to_date(platform: Platform) -> None:
    assert "unchanged" in platform.cube("catalog", "sync").stdout
    assert "nothing to do" in platform.cube("db", "upgrade").stdout
