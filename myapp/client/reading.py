"""`cube get` and `cube describe`: tables and details of what the server holds, or its own JSON."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from typing import Any

from myapp.client import find, follow, session, show
from myapp.client.http import Api, segment
from myapp.client.show import details, duration, moment, pick, table

Column = tuple[str, Callable[[Mapping[str, Any]], Any]]


def _field(*names: str) -> Callable[[Mapping[str, Any]], Any]:
    return lambda row: pick(row, *names)


_TABLES: dict[str, tuple[str, list[Column]]] = {
    "runs": (
        "/run/",
        [
            ("ID", _field("id")),
            ("PIPELINE", _field("pipeline", "pipeline_name", "name")),
            ("PROJECT", _field("project")),
            ("PHASE", _field("phase")),
            ("CREATED", lambda row: moment(pick(row, "created_at", "submitted_at"))),
            ("TOOK", lambda row: duration(pick(row, "started_at", "created_at"), row.get("ended_at"))),
            ("REASON", lambda row: _short(row.get("reason"))),
        ],
    ),
    "pipelines": (
        "/pipeline/",
        [
            ("ID", _field("id")),
            ("NAME", _field("name")),
            ("PROJECT", _field("project")),
            ("VERSION", _field("version")),
            ("CHANGED", lambda row: moment(pick(row, "changed_at", "updated_at", "created_at"))),
            ("TITLE", lambda row: _short(row.get("title"))),
        ],
    ),
    "templates": (
        "/job_template/",
        [
            ("NAME", _field("name")),
            ("FRAMEWORK", _field("framework")),
            ("CATEGORY", _field("category")),
            ("VERSION", lambda row: str(pick(row, "version", "sha256", "hash") or "")[:12]),
            ("TITLE", lambda row: _short(row.get("title"))),
        ],
    ),
    "projects": (
        "/project/",
        [
            ("SLUG", _field("slug", "name")),
            ("TITLE", lambda row: _short(row.get("title"))),
            ("ROLE", _field("role")),
        ],
    ),
}
KINDS = tuple(_TABLES)


def get(args: argparse.Namespace) -> int:
    api = session.open_api(args.url)
    path, columns = _TABLES[args.kind]
    query = {"project": args.project} if args.kind in ("runs", "pipelines") else {}
    if args.kind == "runs":
        query |= {"phase": args.phase, "pipeline": args.pipeline}
    rows = list(find.pages(api, path, limit=args.limit, **query))
    if args.json:
        show.as_json({"count": len(rows), "result": rows})
    elif rows:
        print(table([[value(row) for _, value in columns] for row in rows], [head for head, _ in columns]))
    else:
        print(f"no {args.kind}")
    return 0


def describe(args: argparse.Namespace) -> int:
    api = session.open_api(args.url)
    if args.kind == "run":
        return _describe_run(api, args)
    if args.kind == "pipeline":
        found = find.pipeline(api, args.name, args.project)
    else:
        path = "/job_template/" if args.kind == "template" else "/project/"
        found = api.get(path + segment(args.name))
        found = found.get("result", found)
    if args.json:
        show.as_json(found)
    else:
        plain = [(name, value) for name, value in found.items() if not isinstance(value, dict | list)]
        print(details((name, moment(value) if name.endswith("_at") else value) for name, value in plain))
        for name, value in found.items():
            if isinstance(value, dict | list) and value:
                print(f"{name}:\n{_yaml(value)}")
    return 0


def _describe_run(api: Api, args: argparse.Namespace) -> int:
    identifier = find.run_id(args.name)
    run = follow.read_run(api, identifier)
    if args.json:
        show.as_json(run)
        return 0
    print(
        details(
            [
                ("Run", run.get("id")),
                ("Pipeline", pick(run, "pipeline", "pipeline_name", "name")),
                ("Version", pick(run, "pipeline_version", "version_no")),
                ("Project", run.get("project")),
                ("Phase", run.get("phase")),
                ("Reason", run.get("reason")),
                ("Created", moment(pick(run, "created_at", "submitted_at"))),
                ("Started by", pick(run, "created_by", "creator")),
                ("Took", duration(pick(run, "started_at", "created_at"), run.get("ended_at"))),
                ("Retry of", run.get("retry_of")),
                ("Parameters", run.get("params")),
            ]
        )
    )
    tasks = run.get("tasks", [])
    if tasks:
        print()
        print(
            table(
                [
                    [
                        pick(task, "key", "name"),
                        task.get("phase"),
                        _attempts(task),
                        duration(task.get("started_at"), task.get("ended_at")) if task.get("started_at") else "",
                        _short(task.get("reason"), 100),
                    ]
                    for task in tasks
                ],
                ["TASK", "PHASE", "ATTEMPTS", "TOOK", "REASON"],
            )
        )
    for title, rows in (("Outputs", _named(run, tasks, "outputs")), ("Metrics", _named(run, tasks, "metrics"))):
        if rows:
            print(f"\n{title}")
            print(details(rows, indent="  "))
    return 0


def _named(run: Mapping[str, Any], tasks: list[dict[str, Any]], what: str) -> list[tuple[str, Any]]:
    """`task.name` to value, from each task or from the run as a whole."""
    rows: list[tuple[str, Any]] = []
    for task in tasks:
        rows += _flat(str(pick(task, "key", "name")), task.get(what))
    return rows or _flat("", run.get(what))


def _flat(prefix: str, values: Any) -> list[tuple[str, Any]]:
    if isinstance(values, Mapping):
        rows = []
        for name, value in values.items():
            path = f"{prefix}.{name}" if prefix else str(name)
            inner = isinstance(value, Mapping) and not prefix
            rows += _flat(path, value) if inner else [(path, _value(value))]
        return rows
    if isinstance(values, list):
        return [
            (".".join(filter(None, (prefix, str(pick(v, "task") or ""), str(v.get("name"))))), _value(v))
            for v in values
            if isinstance(v, Mapping)
        ]
    return []


def _value(value: Any) -> Any:
    if isinstance(value, Mapping):
        found = pick(value, "value", "last", "path", "url", "digest")
        return found if found is not None else dict(value)
    return value


def _attempts(task: Mapping[str, Any]) -> Any:
    found = pick(task, "attempts", "attempt", "attempt_no")
    return len(found) if isinstance(found, list) else found


def _short(value: Any, most: int = 60) -> str:
    text = show.safe(str(value or ""))
    return text if len(text) <= most else text[: most - 1] + "…"


def _yaml(value: Any) -> str:
    import yaml

    text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, default_flow_style=False)
    return "\n".join("  " + show.safe(line) for line in text.splitlines())


def watch(args: argparse.Namespace) -> int:
    """`get` again and again, until interrupted."""
    while True:
        print("\x1b[2J\x1b[H", end="")
        get(args)
        time.sleep(args.watch)
