"""The `cube` command. Client commands import only the standard library; the server's parts import what they need."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence

from myapp.client import manage_options
from myapp.client.errors import FAILED, INTERRUPTED, ClientError
from myapp.client.options import Commands, Formatter, natural, one_of, positive

_EPILOG = """\
examples:
  cube up                                    start the platform here (what `make run` does)
  cube apply -f pipeline.yaml                create or change what the file describes
  cube run digits -p seed=3 --wait           run a pipeline; exit code 0 only if the run succeeded
  cube get runs                              what has run lately
  cube logs 12 train -f                      a task's log, as it grows
  cube describe run 12                       tasks, outputs and metrics of a run

Which server: --url, CUBE_URL, the platform of CUBE_HOME (when set), the last login, the platform in ./var.
As whom: CUBE_TOKEN, the login to that server, or, on its own machine, admin with the password in CUBE_HOME.

exit codes: 0 success; 1 refused or failed (run --wait: the run did not succeed); 2 wrong usage;
            3 the server cannot be reached; 4 not signed in or not allowed; 130 interrupted
"""


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    root = argparse.ArgumentParser(
        prog="cube",
        description="Cube Studio: build, run and serve machine-learning work.",
        epilog=_EPILOG,
        formatter_class=Formatter,
    )
    root.add_argument("--version", action="store_true", help="print the version and exit")
    commands = root.add_subparsers(dest="command", metavar="COMMAND")
    _add_client(commands)
    manage_options.add(commands)
    _add_server(commands)
    return root


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    root = parser()
    args = root.parse_args(argv)
    if args.version:
        from importlib.metadata import version

        print(version("cube-studio"))
        return 0
    if not args.command:
        root.print_help()
        return 0
    target = getattr(args, "target", None)
    if target is None:
        args.group.print_help()
        return 2
    try:
        return int(_resolve(target)(args))
    except ClientError as error:
        print("\n".join(error.lines()), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - the reader has gone: nothing more may be written at exit
        return FAILED


def _resolve(target: str) -> Callable[[argparse.Namespace], int]:
    module, _, function = target.partition(":")
    found: Callable[[argparse.Namespace], int] = getattr(importlib.import_module(module), function)
    return found


def _add_client(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    add = Commands(commands).add
    here = "myapp.client.commands"

    login = add(
        "login",
        f"{here}:login",
        "sign in to a server and remember the token (~/.config/cube-studio, mode 600)",
        example="  cube login http://localhost:8080\n  cube login https://cube.example.org --token - < token.txt",
    )
    login.add_argument("server", nargs="?", metavar="URL", help="the server, e.g. http://localhost:8080")
    login.add_argument("--url", help=argparse.SUPPRESS)
    login.add_argument("-u", "--username", metavar="NAME", help="user name (else it is asked for)")
    login.add_argument(
        "--password",
        metavar="TEXT",
        help="else CUBE_PASSWORD, else asked for (better: other users may see a command line)",
    )
    login.add_argument(
        "--token", metavar="TOKEN", help="an API token instead of a password; - reads it from standard input"
    )

    add("whoami", f"{here}:whoami", "who is signed in, and where", url=True, json=True)

    for name, what in (
        ("validate", "check documents without storing anything: every problem, with its field and line"),
        ("apply", "create or change what documents describe: Pipeline, JobTemplate; run each AIJob"),
    ):
        command = add(
            name,
            f"{here}:{name}",
            what,
            url=True,
            json=True,
            example=f"  cube {name} -f pipeline.yaml\n  cat *.yaml | cube {name} -f -",
        )
        command.add_argument(
            "-f",
            "--file",
            action="append",
            required=True,
            metavar="FILE",
            help="YAML with one or several documents; - is the standard input; may be repeated",
        )

    run = add(
        "run",
        f"{here}:run",
        "run a pipeline",
        url=True,
        json=True,
        example="  cube run digits --wait\n  cube run vision/train -p epochs=3 -p 'sizes=[1, 2]' --priority high",
    )
    run.add_argument("pipeline", metavar="PIPELINE", help="name, project/name or id")
    _add_params(run)
    run.add_argument("--project", metavar="SLUG", help="the pipeline's project")
    run.add_argument("--version", type=int, metavar="N", dest="version", help="this version instead of the newest")
    run.add_argument("--priority", choices=("low", "normal", "high"), help="before or after other runs")
    run.add_argument("--idempotency-key", metavar="KEY", help="asking again with the same key gives the same run")
    _add_wait(run)

    get = add(
        "get",
        "myapp.client.reading:get",
        "list runs, pipelines, templates or projects",
        url=True,
        json=True,
        example="  cube get runs --phase failed --limit 5\n  cube get pipelines --json",
    )
    nouns = ("runs", "pipelines", "templates", "projects")
    get.add_argument("kind", choices=nouns, type=one_of(nouns))
    get.add_argument("--project", metavar="SLUG", help="of one project (runs, pipelines)")
    get.add_argument("--pipeline", metavar="NAME", help="of one pipeline (runs)")
    get.add_argument(
        "--phase", choices=("queued", "running", "succeeded", "failed", "stopped"), help="in one phase (runs)"
    )
    get.add_argument(
        "--limit", type=positive, default=50, metavar="N", help="at most so many, newest first (default: 50)"
    )

    describe = add(
        "describe",
        "myapp.client.reading:describe",
        "all about a run, pipeline, template or project",
        url=True,
        json=True,
        example="  cube describe run 12\n  cube describe pipeline digits --json",
    )
    nouns = ("run", "pipeline", "template", "project")
    describe.add_argument("kind", choices=nouns, type=one_of(nouns))
    describe.add_argument(
        "name", metavar="NAME", help="the run's number; a pipeline's name, project/name or id; a name"
    )
    describe.add_argument("--project", metavar="SLUG", help="the pipeline's project")

    logs = add(
        "logs",
        f"{here}:logs",
        "a task's log",
        url=True,
        example="  cube logs 12 train -f\n  cube logs 12 train --attempt 1 --rank 3",
    )
    logs.add_argument("run", metavar="RUN")
    logs.add_argument("task", nargs="?", metavar="TASK", help="may be left out when the run has one task")
    logs.add_argument("-f", "--follow", action="store_true", help="go on until the log ends")
    logs.add_argument("--attempt", type=positive, metavar="N", help="this attempt instead of the newest")
    logs.add_argument(
        "--rank", type=natural, default=0, metavar="N", help="this rank of a distributed task (default: 0)"
    )
    logs.add_argument("--raw", action="store_true", help="as it is, control characters included")

    cancel = add("cancel", f"{here}:cancel", "stop runs", url=True)
    cancel.add_argument("run", nargs="+", metavar="RUN")
    cancel.add_argument("--reason", metavar="TEXT", help="kept with the run")
    cancel.add_argument("--wait", action="store_true", help="until they have stopped")

    retry = add("retry", f"{here}:retry", "run the failed tasks of a run again, as a new run", url=True, json=True)
    retry.add_argument("run", metavar="RUN")
    retry.add_argument("--all", action="store_true", help="every task, not only those that did not succeed")
    _add_params(retry)
    _add_wait(retry)


def _add_params(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "-p",
        "--param",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a parameter of the pipeline, read by its type; lists and objects as JSON",
    )


def _add_wait(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--wait", action="store_true", help="until the run has ended; the exit code is 0 only if it succeeded"
    )


def _add_server(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    add = Commands(commands).add
    here = "myapp.cli_server"

    up = add(
        "up",
        f"{here}:up",
        "start the whole platform on this machine and stay in the foreground",
        example="  cube up\n  cube up --port 8081 --home ./var2",
    )
    _add_address(up)
    up.add_argument("--follow-parent", action="store_true", help=argparse.SUPPRESS)

    for name, what in (
        ("web", "the web server alone, for containers and many machines"),
        ("worker", "a worker alone: does what the doorbells ask for"),
        ("beat", "the clock alone: rings what is due"),
        ("watch", "the watcher alone: notices what jobs do"),
    ):
        part = add(name, f"{here}:part", what)
        _add_address(part)
        part.set_defaults(part=name)

    alive = add(
        "alive",
        "myapp.client.heartbeat:alive",
        "whether a part that runs alone on this machine lives (for health checks)",
    )
    alive.add_argument("part", choices=("web", "worker", "beat", "watch"))

    init = add(
        "init",
        f"{here}:init",
        "bring schema, administrator, catalogue and sample up to date, then end (`up` does it itself)",
    )
    _add_home(init)

    doctor = add(
        "doctor",
        f"{here}:doctor",
        "check this machine and the invariants of the database; 0 only if all is well",
        json=True,
    )
    _add_home(doctor)

    catalog = add("catalog", None, "the catalogue of job templates and frameworks")
    sync = Commands(catalog.add_subparsers(metavar="ACTION")).add(
        "sync", f"{here}:catalog_sync", "validate the catalogue's files and load them into the database", json=True
    )
    _add_home(sync)
    sync.add_argument(
        "--root", metavar="FOLDER", help="the catalogue's folder (default: CUBE_CATALOG_ROOT, else the one shipped)"
    )

    db = add("db", None, "the database")
    actions = Commands(db.add_subparsers(metavar="ACTION"))
    _add_home(actions.add("upgrade", f"{here}:db_upgrade", "bring the schema and the permissions up to date"))
    downgrade = actions.add(
        "downgrade", f"{here}:db_downgrade", "take the schema back to a revision, dropping what is newer"
    )
    downgrade.add_argument("revision", help="e.g. 0001, or base for nothing")
    downgrade.add_argument("--yes", action="store_true", required=True, help="data will be lost: say that you mean it")
    _add_home(downgrade)

    docs = add("docs", "myapp.cli_docs:write", "write the reference pages that are made from the code")
    docs.add_argument("folder", metavar="FOLDER")


def _add_home(command: argparse.ArgumentParser) -> None:
    command.add_argument("--home", metavar="FOLDER", help="CUBE_HOME: where everything is kept (default: ./var)")


def _add_address(command: argparse.ArgumentParser) -> None:
    _add_home(command)
    command.add_argument("--host", metavar="ADDRESS", help="address to listen on (default: 127.0.0.1)")
    command.add_argument("--port", metavar="N", help="port to listen on (default: 8080; 0: any that is free)")


if __name__ == "__main__":
    sys.exit(main())
