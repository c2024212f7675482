"""The server's side of the `cube` command: what works on this machine's CUBE_HOME and its database."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from myapp.client.errors import FAILED, USAGE, ClientError

if TYPE_CHECKING:
    from myapp.config import Settings


def load(args: argparse.Namespace) -> Settings:
    """The settings, with the command line's on top. Raises ClientError naming the wrong one.

    From here on this process makes files for its own user only: CUBE_HOME holds passwords' hashes, logs and data.
    """
    os.umask(0o077)
    from pydantic import ValidationError

    from myapp.config import load_settings

    given = {name: getattr(args, name, None) for name in ("home", "host", "port")}
    try:
        return load_settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        raise ClientError(
            f"the setting {name} is wrong: {first['msg']}",
            f"Set CUBE_{name.upper()} (or --{name}) to a value that docs/reference/settings.md allows.",
            exit_code=USAGE,
        ) from None


def _explained(work: Callable[[], int]) -> int:
    """Run it; what stops it is said with its remedy, not as a traceback."""
    from sqlalchemy.exc import OperationalError

    from myapp.domain.errors import CubeError
    from myapp.supervisor.errors import StartError

    try:
        return work()
    except (StartError, CubeError) as error:
        raise ClientError(error.message, error.resolution, detail=_problems(error)) from error
    except OperationalError as error:
        raise ClientError(
            f"the database cannot be used: {error.orig}", "Check CUBE_DATABASE_URL, and that the server is running."
        ) from error


def _problems(error: Exception) -> Any:
    return [problem.model_dump(exclude_none=True) for problem in getattr(error, "problems", [])]


def up(args: argparse.Namespace) -> int:
    from myapp.supervisor.up import up as start

    settings = load(args)
    return _explained(lambda: start(settings, follow_parent=args.follow_parent))


def part(args: argparse.Namespace) -> int:
    from myapp.supervisor import checks, parts

    settings = load(args)

    def work() -> int:
        checks.prepare_home(settings)
        return parts.run_alone(args.part, checks.with_redis(settings))

    return _explained(work)


def init(args: argparse.Namespace) -> int:
    from myapp.supervisor import checks
    from myapp.supervisor.first_start import prepare

    settings = load(args)

    def work() -> int:
        checks.prepare_home(settings)
        prepared = prepare(checks.with_redis(settings))
        if prepared.password_made:
            print(f"user admin, password {prepared.password_made}  (also in {settings.root / 'admin-password'})")
        for note in prepared.notes:
            print(note)
        return 0

    return _explained(work)


def db_upgrade(args: argparse.Namespace) -> int:
    from myapp.supervisor import checks
    from myapp.supervisor.first_start import upgrade

    settings = load(args)

    def work() -> int:
        checks.prepare_home(settings)
        changed = upgrade(checks.with_redis(settings))
        print("the database is up to date" + ("" if changed else " (nothing to do)"))
        return 0

    return _explained(work)


def db_downgrade(args: argparse.Namespace) -> int:
    from myapp.persistence import schema

    settings = load(args)

    def work() -> int:
        schema.downgrade(settings.database, args.revision)
        print(f"the schema is at {schema.current(settings.database) or 'base'}")
        return 0

    return _explained(work)


def catalog_sync(args: argparse.Namespace) -> int:
    from myapp.supervisor import checks
    from myapp.supervisor.first_start import sync

    settings = load(args)
    if args.root:
        from pathlib import Path

        settings = settings.model_copy(update={"catalog_root": Path(args.root)})

    def work() -> int:
        report = sync(checks.with_redis(settings))
        if args.json:
            print(json.dumps(report, indent=2))
        else:
            for line in report["lines"]:
                print(line)
        for refused in report["refused"]:
            print(f"refused: {refused}", file=sys.stderr)
        return FAILED if report["refused"] else 0

    return _explained(work)


def doctor(args: argparse.Namespace) -> int:
    from myapp.supervisor.doctor import examine

    settings = load(args)
    findings = examine(settings)
    if args.json:
        print(json.dumps([finding.as_dict() for finding in findings], indent=2))
    else:
        for finding in findings:
            print(finding.line())
    return FAILED if any(finding.state == "bad" for finding in findings) else 0
