"""Projects, users, tokens, schedules and artifacts with the `cube` command against the real platform."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.platform import Platform

pytestmark = pytest.mark.e2e
SECRET = "long-and-different-1"
PIPELINE = """\
apiVersion: cube-studio.io/v1alpha1
kind: Pipeline
metadata: {name: pictures, project: public}
spec:
  schedule: {cron: "0 3 * * *", timezone: Europe/Berlin}
  tasks:
    - name: make
      template: shell
      args:
        command: |
          mkdir -p "$CUBE_OUTPUT_DIR/artifacts/folder"
          printf picture > "$CUBE_OUTPUT_DIR/artifacts/matrix.png"
          printf inner > "$CUBE_OUTPUT_DIR/artifacts/folder/a.txt"
    - name: use
      dependsOn: [make]
      template: shell
      env: {PICTURE: "{{ tasks.make.outputs.matrix.png }}"}
      args: {command: 'cat "$PICTURE"'}
"""


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with Platform(tmp_path_factory.mktemp("e2e") / "var") as started:
        yield started


def said(platform: Platform, *argv: str, stdin: str = "", code: int = 0) -> str:
    done = platform.cube(*argv, stdin=stdin)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def test_people_and_projects(platform: Platform) -> None:
    made = said(platform, "user", "create", "ada", "--email", "ada@example.org", stdin=SECRET + "\n")
    assert made == "user ada made\n"
    assert "already" in said(platform, "user", "create", "ada", stdin=SECRET + "\n", code=1)
    assert said(platform, "project", "create", "vision", "--title", "Vision") == "project vision made\n"
    assert "cube user create" in said(platform, "project", "add-member", "vision", "nobody", code=1)
    assert said(platform, "project", "add-member", "vision", "ada", "--role", "ops") == "ada is ops of vision\n"
    members = platform.json("project", "members", "vision")["result"]
    assert {row["username"]: row["role"] for row in members} == {"admin": "owner", "ada": "ops"}
    said(platform, "project", "remove-member", "vision", "ada")
    assert "ada" not in said(platform, "project", "members", "vision")


def test_tokens(platform: Platform) -> None:
    token = said(platform, "token", "create", "ci", "--days", "3").strip()
    assert token.startswith("sst_")
    assert [row["name"] for row in platform.json("token", "list")["result"]] == ["ci"]
    assert platform.cube("whoami", CUBE_TOKEN=token).returncode == 0
    assert "cannot make another one" in platform.cube("token", "create", "more", CUBE_TOKEN=token).stderr
    assert said(platform, "token", "revoke", "ci") == "token ci revoked\n"
    assert platform.cube("whoami", CUBE_TOKEN=token).returncode == 4
    assert said(platform, "token", "list") == "no tokens\n"


def test_a_schedule_and_what_apply_says_of_it(platform: Platform, tmp_path: Path) -> None:
    said(platform, "apply", "-f", "-", stdin=PIPELINE)
    changed = said(platform, "apply", "-f", "-", stdin=PIPELINE.replace("0 3 * * *", "0 4 * * *"))
    assert changed == "Pipeline pictures schedule changed (version 1)\n"
    assert said(platform, "schedule", "pause", "pictures") == "the schedule 0 4 * * * of pictures is paused\n"
    assert "(paused)" in said(platform, "describe", "pipeline", "pictures")
    assert "04:00 (Europe/Berlin)" in said(platform, "schedule", "resume", "pictures")
    assert "04:00 (Europe/Berlin)" in said(platform, "describe", "pipeline", "pictures")


def test_artifacts_with_dots_are_referred_to_and_downloaded(platform: Platform, tmp_path: Path) -> None:
    said(platform, "apply", "-f", "-", stdin=PIPELINE)
    run = platform.json("run", "pictures", "--wait")
    assert run["phase"] == "succeeded", run["reason"]
    number = str(run["id"])
    assert said(platform, "logs", number, "use") == "picture"
    said(platform, "artifact", "get", number, "make", "matrix.png", "-o", str(tmp_path / "m.png"))
    assert (tmp_path / "m.png").read_text() == "picture"
    assert said(platform, "artifact", "get", number, "make", "folder/a.txt", "-o", "-") == "inner"
    said(platform, "artifact", "get", number, "make", "folder", "-o", str(tmp_path / "f.zip"))
    assert (tmp_path / "f.zip").read_bytes().startswith(b"PK")
    assert "no artifact" in said(platform, "artifact", "get", number, "make", "nothing", code=1)
