"""Projects, users, tokens, schedules and artifacts. Each takes the parsed arguments and answers the exit code."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from myapp.client import find, session, show
from myapp.client.ask import ask
from myapp.client.errors import USAGE, ClientError
from myapp.client.http import Api, segment


def project_create(args: argparse.Namespace) -> int:
    api = session.open_api(args.url)
    api.post("/project/", {"slug": args.project, "title": args.title, "description": args.description})
    print(f"project {args.project} made")
    return 0


def project_members(args: argparse.Namespace) -> int:
    rows = session.open_api(args.url).get(f"/project/{segment(args.project)}/member/")["result"]
    if args.json:
        show.as_json({"count": len(rows), "result": rows})
    else:
        cells = [[row.get("username"), row.get("role"), row.get("name"), show.moment(row.get("since"))] for row in rows]
        print(show.table(cells, ["USER", "ROLE", "NAME", "SINCE"]) if rows else "no members")
    return 0


def project_add_member(args: argparse.Namespace) -> int:
    session.open_api(args.url).request("PUT", _member(args), body={"role": args.role})
    print(show.safe(f"{args.username} is {args.role} of {args.project}"))
    return 0


def project_remove_member(args: argparse.Namespace) -> int:
    session.open_api(args.url).request("DELETE", _member(args))
    print(show.safe(f"{args.username} is no member of {args.project} any more"))
    return 0


def _member(args: argparse.Namespace) -> str:
    return f"/project/{segment(args.project)}/member/{segment(args.username)}"


def user_create(args: argparse.Namespace) -> int:
    api = session.open_api(args.url)
    password = ask(f"Password for {args.username} (at least 10 characters): ", hidden=True)
    if sys.stdin.isatty() and password != ask("The same again: ", hidden=True):
        raise ClientError("the two passwords differ", "Try again.", exit_code=USAGE)
    body = {"username": args.username, "password": password, "email": args.email, "first_name": args.first_name,
            "last_name": args.last_name, "admin": args.admin}
    api.post("/security/user/", body)
    print(f"user {args.username} made")
    return 0


def token_create(args: argparse.Namespace) -> int:
    body = {"name": args.name, "days": None if args.forever else args.days}
    made = session.open_api(args.url).post("/security/token/", body)["result"]
    if args.json:
        show.as_json(made)
        return 0
    until = show.moment(made.get("expires_on"))
    print(made["token"])
    print(f"valid until {until or 'it is revoked'}; it is not shown again", file=sys.stderr)
    return 0


def token_list(args: argparse.Namespace) -> int:
    rows = _tokens(session.open_api(args.url))
    if args.json:
        show.as_json({"count": len(rows), "result": rows})
        return 0
    names = ("created_on", "expires_on", "last_used_on")
    cells = [[row["name"], row["prefix"] + "…", *(show.moment(row.get(name)) for name in names), row["id"]]
             for row in rows]
    heads = ["NAME", "TOKEN", "CREATED", "EXPIRES", "LAST USED", "ID"]
    print(show.table(cells, heads) if rows else "no tokens")
    return 0


def token_revoke(args: argparse.Namespace) -> int:
    api = session.open_api(args.url)
    rows = _tokens(api)
    chosen = next((row for row in rows if args.token in (row["id"], row["name"])), None)
    if chosen is None:
        known = ", ".join(str(row["name"]) for row in rows)
        raise ClientError(f"you have no token {args.token}", f"Yours: {known}" if known else None)
    api.request("DELETE", f"/security/token/{segment(chosen['id'])}")
    print(show.safe(f"token {chosen['name']} revoked"))
    return 0


def _tokens(api: Api) -> list[dict[str, Any]]:
    return list(api.get("/security/token/")["result"])


def schedule_pause(args: argparse.Namespace) -> int:
    found = _schedule(args, "pause")
    print(f"the schedule {found['cron']} of {show.safe(args.pipeline)} is paused")
    return 0


def schedule_resume(args: argparse.Namespace) -> int:
    found = _schedule(args, "resume")
    coming = show.moments(found["next_times"][:1], found["timezone"])
    print(f"the schedule {found['cron']} of {show.safe(args.pipeline)} goes on: {coming}")
    return 0


def _schedule(args: argparse.Namespace, action: str) -> dict[str, Any]:
    api = session.open_api(args.url)
    identifier = find.pipeline_id(api, args.pipeline, args.project)
    return dict(api.post(f"/pipeline/{identifier}/schedule/{action}")["result"])


def artifact_get(args: argparse.Namespace) -> int:
    """The file appears whole or not at all."""
    api, run = session.open_api(args.url), find.run_id(args.run)
    parts = "/".join(segment(part) for part in args.name.split("/"))
    path = f"/run/{run}/artifact/{segment(args.task)}/{parts}"
    if args.output == "-":
        api.download(path, sys.stdout.buffer.write)
        sys.stdout.buffer.flush()
        return 0
    target = Path(args.output or args.name.rstrip("/").rpartition("/")[2])
    if target.is_dir() and args.output:
        target /= args.name.rstrip("/").rpartition("/")[2]
    part = target.with_name(f".cube-{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            headers = api.download(path, file.write)
        zipped = headers.get("content-type", "").startswith("application/zip")
        if zipped and not args.output and target.suffix != ".zip":
            target = target.with_name(f"{target.name}.zip")
        if target.exists() and not args.output:
            raise ClientError(f"{target} is there already", f"Say where to: -o {target}", exit_code=USAGE)
        part.replace(target)
    except OSError as error:
        said = f"{target} cannot be written: {error.strerror}"
        raise ClientError(said, "Check the folder.", exit_code=USAGE) from None
    finally:
        part.unlink(missing_ok=True)
    print(show.safe(f"{target} ({target.stat().st_size} bytes)"))
    return 0
