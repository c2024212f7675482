"""The client commands. Each takes the parsed arguments and answers the exit code."""

from __future__ import annotations

import argparse
import json
import os
import sys
import uuid
from typing import Any

from myapp.client import documents, find, follow, session, show
from myapp.client.ask import ask
from myapp.client.errors import DENIED, FAILED, USAGE, ClientError, problem_line
from myapp.client.http import Api
from myapp.client.show import pick


def _api(args: argparse.Namespace) -> Api:
    return session.open_api(args.url)


def login(args: argparse.Namespace) -> int:
    """Sign in and remember the token."""
    url = args.server or args.url
    if not url:
        url = session.open_api().url
    api = Api(session.normal_url(url))
    if args.token:
        token = sys.stdin.readline().strip() if args.token == "-" else args.token  # noqa: S105
        api.token = token
        username = str(pick(api.get("/me/"), "result.username") or "")
    else:
        username = args.username or ask("User name: ")
        password = args.password or os.environ.get("CUBE_PASSWORD") or ask("Password: ", hidden=True)
        if not username or not password:
            raise ClientError(
                "a user name and a password are needed", "Or use an API token: --token -", exit_code=USAGE
            )
        token = session.login(api, username, password)
    path = session.login_file()
    session.save_login(path, session.normal_url(api.url), username, token)
    print(f"Signed in to {api.url} as {show.safe(username)}; the token is in {path}")
    return 0


def validate(args: argparse.Namespace) -> int:
    """Every problem of every document, as the server sees them."""
    api, bad, report = _api(args), 0, []
    for document in documents.read(args.file):
        problems = _problems(api, document)
        wrong = any(problem.get("severity", "error") == "error" for problem in problems)
        bad += wrong
        report.append({"source": document.source, "kind": document.kind, "name": document.name, "problems": problems})
        if not args.json:
            verdict = "" if wrong else " valid"
            print(f"{document.source}, line {document.line}: {show.safe(document.label)}:{verdict}")
            for problem in problems:
                print(f"  {show.safe(problem_line(problem))}")
    if args.json:
        show.as_json(report)
    return FAILED if bad else 0


def _problems(api: Api, document: documents.Document) -> list[dict[str, Any]]:
    try:
        reply = api.request(
            "POST", "/pipeline/validate", body=document.text.encode(), content_type="application/yaml"
        ).json()
    except ClientError as error:
        if error.status not in (400, 409, 413, 422):
            raise
        whole = [{"message": error.message, "resolution": error.resolution}]
        found = error.detail if isinstance(error.detail, list) else whole
    else:
        found = pick(reply, "result.problems") or []
    return [dict(document.in_file(problem)) for problem in found]


def apply(args: argparse.Namespace) -> int:
    """Send each document; go on after a refused one, so that all that is wrong is said at once."""
    api, failed, report = _api(args), 0, []
    for document in documents.read(args.file):
        try:
            outcome = _apply_one(api, document)
        except ClientError as error:
            if error.status in (0, 401):
                raise
            failed += 1
            outcome = {"outcome": "refused", "message": error.message}
            place = f"{document.source}, line {document.line}"
            said = f"error: {place}: {document.label}: "
            if isinstance(error.detail, list) and error.detail:
                lines = [said + "refused", *(f"  {problem_line(document.in_file(p))}" for p in error.detail)]
            else:
                lines = [said + error.message, *([f"  {error.resolution}"] if error.resolution else [])]
            print("\n".join(show.safe(line) for line in lines), file=sys.stderr)
        else:
            if not args.json:
                print(show.safe(f"{document.label} {_about(document, outcome)}"))
                for problem in outcome.get("warnings", []):
                    print(f"  {show.safe(problem_line(problem))}", file=sys.stderr)
        report.append({"kind": document.kind, "name": document.name, **outcome})
    if args.json:
        show.as_json(report)
    return FAILED if failed else 0


def _apply_one(api: Api, document: documents.Document) -> dict[str, Any]:
    is_job = document.kind == "AIJob"
    headers = {"Idempotency-Key": uuid.uuid4().hex} if is_job else {}
    reply = api.request(
        "POST", document.path, body=document.text.encode(), content_type="application/yaml", headers=headers
    )
    said = reply.json() or {}
    warnings = [document.in_file(problem) for problem in said.get("warnings") or []]
    more: dict[str, Any] = {"warnings": warnings} if warnings else {}
    if is_job:
        return {"outcome": "submitted", "id": said.get("id"), **more}
    created, changes = said.get("created", reply.status == 201), said.get("changes") or []
    if created:
        outcome = "created" if said.get("version") in (1, None) else "updated"
    else:
        outcome = "changed" if changes else "unchanged"
    more |= {"changes": changes} if changes else {}
    return {"outcome": outcome, "id": said.get("id"), "version": said.get("version"), **more}


def _about(document: documents.Document, outcome: dict[str, Any]) -> str:
    """`updated (version 2), schedule removed`; what changed stands for itself when there is no new version."""
    if document.kind == "AIJob":
        return f"submitted as run {outcome['id']}"
    version, changes = outcome.get("version"), ", ".join(outcome.get("changes", []))
    place = f" (version {str(version)[:12]})" if version is not None else ""
    if outcome["outcome"] == "changed":
        return f"{changes}{place}"
    return f"{outcome['outcome']}{place}" + (f", {changes}" if changes else "")


def run(args: argparse.Namespace) -> int:
    """Start a run; with --wait its end decides the exit code."""
    api = _api(args)
    identifier = find.pipeline_id(api, args.pipeline, args.project)
    params = _params(args.param, find.param_types(api, identifier) if args.param else {})
    body: dict[str, Any] = {"params": params}
    if args.priority:
        body["priority"] = args.priority
    if args.version is not None:
        body["version"] = args.version
    key = args.idempotency_key or uuid.uuid4().hex
    reply = api.request("POST", f"/pipeline/{identifier}/run", body=body, headers={"Idempotency-Key": key}).json()
    return _started(api, int(reply["id"]), args)


def retry(args: argparse.Namespace) -> int:
    """A new run of the failed tasks, or with --all of every task."""
    api = _api(args)
    identifier = find.run_id(args.run)
    body: dict[str, Any] = {"mode": "all" if args.all else "failed"}
    if args.param:
        pipeline = follow.read_run(api, identifier).get("pipeline_id")
        body["params"] = _params(args.param, find.param_types(api, pipeline) if pipeline else {})
    reply = api.request(
        "POST",
        f"/run/{identifier}/retry",
        body=body,
        headers={"Idempotency-Key": uuid.uuid4().hex},
    ).json()
    return _started(api, int(reply["id"]), args)


def _started(api: Api, identifier: int, args: argparse.Namespace) -> int:
    if not args.wait:
        if args.json:
            show.as_json({"id": identifier})
        else:
            print(f"run {identifier} started; follow it: cube describe run {identifier}")
        return 0
    if args.json:
        found = follow.await_run(api, identifier)
        show.as_json(found)
    else:
        print(f"run {identifier}", file=sys.stderr, flush=True)
        progress = follow.Progress()
        found = follow.await_run(api, identifier, progress)
        print(f"run {identifier} {found['phase']} in {show.duration(found['submitted_at'], found['finished_at'])}")
        if found["phase"] != "succeeded":
            _say_why(found, progress.failed)
    return 0 if found["phase"] == "succeeded" else FAILED


def _say_why(found: dict[str, Any], said: set[str]) -> None:
    """What has not been said yet: the run's own reason, tasks other than `said`, and where the logs are."""
    failed = [task for task in found["tasks"] if task["phase"] == "failed"]
    reason = str(found.get("reason") or "")
    if reason and not any(reason.startswith(f"{task['key']}: ") for task in failed):
        print(f"  {show.safe(reason)}", file=sys.stderr)
    for task in failed:
        if task["key"] not in said:
            print(f"  {show.safe(task['key'] + ': ' + str(task.get('reason') or 'failed'))}", file=sys.stderr)
        if task["attempts"]:
            print(f"  its log: cube logs {found['id']} {show.safe(task['key'])}", file=sys.stderr)


def _params(pairs: list[str], types: dict[str, str]) -> dict[str, Any]:
    """`k=v` by the parameter's type: text as it stands, everything else as JSON where it is that."""
    params: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise ClientError(f"-p {pair} is not name=value", "Write it like -p seed=3", exit_code=USAGE)
        params[name] = value if types.get(name) in ("str", "text") else _json_or_text(value)
    return params


def _json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value


def cancel(args: argparse.Namespace) -> int:
    api = _api(args)
    for value in args.run:
        identifier = find.run_id(value)
        api.post(f"/run/{identifier}/cancel", {"reason": args.reason} if args.reason else None)
        if args.wait:
            phase = follow.await_run(api, identifier)["phase"]
            print(f"run {identifier} is {phase}")
        else:
            print(f"run {identifier} is being stopped")
    return 0


def logs(args: argparse.Namespace) -> int:
    api = _api(args)
    identifier = find.run_id(args.run)
    found = follow.read_run(api, identifier)
    task = find.only_task(found, args.task)
    wrote = follow.follow_log(
        api,
        identifier,
        task,
        attempt=args.attempt,
        rank=args.rank,
        follow=args.follow,
        raw=args.raw or not sys.stdout.isatty(),
    )
    phase = next(row["phase"] for row in found["tasks"] if row["key"] == task)
    goes_on = phase not in follow.TASK_TERMINAL and not args.follow
    if not wrote:
        who = f"rank {args.rank} of task {task}" if args.rank else f"task {task}"
        print(show.safe(f"{who} has written nothing" + (" yet" if goes_on else "")), file=sys.stderr)
    if goes_on:
        again = " ".join(["cube logs", str(identifier), *([args.task] if args.task else []),
                          *(["--rank", str(args.rank)] if args.rank else [])])
        print(show.safe(f"run {identifier} is still running; {again} -f follows it"), file=sys.stderr)
    return 0


def whoami(args: argparse.Namespace) -> int:
    api = _api(args)
    try:
        found = api.get("/me/")["result"]
    except ClientError as error:
        if error.status != 401 or api.token:
            raise
        raise ClientError("nobody is signed in", f"Sign in: cube login {api.url}", exit_code=DENIED) from None
    if args.json:
        show.as_json({"url": api.url, **found})
    else:
        print(f"{show.safe(str(found.get('username')))} at {api.url}")
    return 0
