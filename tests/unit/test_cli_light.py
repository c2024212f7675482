"""The client commands stay quick: none of the server's libraries is imported for them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = ("flask", "flask_appbuilder", "sqlalchemy", "celery", "pydantic", "redis", "requests", "myapp.config")
PROGRAM = """
import contextlib, io, json, sys
from myapp.cli import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    try:
        code = main(sys.argv[1:])
    except SystemExit as end:
        code = end.code or 0
print(json.dumps({"code": code, "modules": sorted(sys.modules)}))
"""


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["--help"], 0),
        (["run", "--help"], 0),
        ([], 0),
        (["db"], 2),
        (["nonsense"], 2),
        (["get", "runs", "--url", "http://127.0.0.1:9"], 3),
        (["project", "members", "x", "--url", "http://127.0.0.1:9"], 3),
        (["artifact", "get", "twelve", "a", "b", "--url", "http://127.0.0.1:9"], 2),
        (["logs", "twelve", "--url", "http://127.0.0.1:9"], 2),
        (["apply", "-f", "/nowhere.yaml", "--url", "http://127.0.0.1:9"], 2),
    ],
)
def test_client_commands_import_nothing_of_the_server(argv: list[str], code: int, tmp_path: object) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *argv],
        capture_output=True,
        text=True,
        check=True,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["code"] == code
    assert [name for name in HEAVY if name in said["modules"]] == []
