"""`cube get` and `cube describe`: tables and details of what the server holds, or its own JSON."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from myapp.client import find, follow, session, show
from myapp.client.http import Api, segment
from myapp.client.show import details, duration, moment, pick, table

Row = Mapping[str, Any]
Column = tuple[str, Callable[[Row], Any]]


def _field(name: str) -> Callable[[Row], Any]:
    return lambda row: row.get(name)


def _pipeline_of(row: Row) -> Any:
    return row.get("name") if row.get("kind") != "job" else f"{row.get('name')} (job)"


_TABLES: dict[str, tuple[str, list[Column]]] = {
    "runs": (
        "/run/",
        [
            ("ID", _field("id")),
            ("PIPELINE", _pipeline_of),
            ("PROJECT", _field("project")),
            ("PHASE", _field("phase")),
            ("SUBMITTED", lambda row: moment(row.get("submitted_at"))),
            ("TOOK", lambda row: duration(row.get("started_at"), row.get("finished_at"))),
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
            ("CHANGED", lambda row: moment(row.get("updated_at"))),
            ("SCHEDULE", lambda row: _schedule(row.get("schedule"))),
            ("TITLE", lambda row: _short(row.get("title"))),
        ],
    ),
    "templates": (
        "/job_template/",
        [
            ("NAME", _field("name")),
            ("FRAMEWORK", _field("framework")),
            ("CATEGORY", _field("category")),
            ("VERSION", _field("version")),
            ("TITLE", lambda row: _short(row.get("title"))),
        ],
    ),
    "projects": (
        "/project/",
        [
            ("SLUG", _field("slug")),
            ("ROLE", _field("role")),
            ("BACKEND", _field("backend")),
            ("TITLE", lambda row: _short(row.get("title"))),
        ],
    ),
}


def get(args: argparse.Namespace) -> int:
    api = session.open_api(args.url)
    path, columns = _TABLES[args.kind]
    query = {"project": args.project} if args.kind in ("runs", "pipelines") else {}
    if args.kind == "runs":
        query["phase"] = args.phase
        if args.pipeline:
            query["pipeline_id"] = find.pipeline_id(api, args.pipeline, args.project)
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
    shown: Callable[[Row], None]
    if args.kind == "run":
        found, shown = follow.read_run(api, find.run_id(args.name)), _show_run
    elif args.kind == "pipeline":
        found, shown = find.pipeline(api, args.name, args.project), _show_pipeline
    elif args.kind == "template":
        found, shown = _read(api, "/job_template/", args.name), _show_template
    else:
        found, shown = _read(api, "/project/", args.name), _show_project
    if args.json:
        show.as_json(found)
    else:
        shown(found)
    return 0


def _read(api: Api, path: str, name: str) -> dict[str, Any]:
    return dict(api.get(path + segment(name))["result"])


def _show_run(run: Row) -> None:
    print(
        details(
            [
                ("Run", run["id"]),
                ("Pipeline", _pipeline_of(run)),
                ("Project", run["project"]),
                ("Phase", run["phase"]),
                ("Reason", run.get("reason")),
                ("Waiting", run.get("waiting")),
                ("Submitted", moment(run.get("submitted_at"))),
                ("By", run.get("created_by")),
                ("Took", duration(run.get("started_at"), run.get("finished_at"))),
                ("Retry of", run.get("retry_of")),
                ("Parameters", run.get("params")),
            ]
        )
    )
    tasks = run.get("tasks") or []
    if tasks:
        rows = [
            [
                task["key"],
                task["phase"],
                len(task["attempts"]) or ("carried over" if task.get("carried_from") else ""),
                duration(task.get("started_at"), task.get("finished_at")),
                _short(task.get("waiting") or task.get("reason"), 100),
            ]
            for task in tasks
        ]
        print(f"\n{table(rows, ['TASK', 'PHASE', 'ATTEMPTS', 'TOOK', 'REASON'])}")
    if run.get("next_ordinal") is not None:
        print(f"... and more tasks: {run.get('task_counts')}")
    _section(
        "Outputs",
        ((f"{task}.{n}", v) for task, values in (run.get("outputs") or {}).items() for n, v in values.items()),
    )
    _section("Metrics", ((f"{m['task']}.{m['name']}", m["value"]) for m in run.get("metrics") or []))
    _section(
        "Artifacts",
        ((f"{a['task']}.{a['name']}", f"{a['path']} ({a['size']} bytes)") for a in run.get("artifacts") or []),
    )
    _section("Attempts that did not succeed", _lost_attempts(tasks))
    _section("Diagnoses", _diagnoses(tasks))
    _section("Ranks", _ranks(run["id"], tasks))


def _lost_attempts(tasks: Iterable[Row]) -> Iterable[tuple[str, str]]:
    """Why a task has more than one attempt; how a failed task's last one ended, its diagnosis says."""
    for task in tasks:
        last = task["attempts"][-1]["no"] if task["attempts"] else 0
        for attempt in task["attempts"]:
            if attempt["phase"] not in ("failed", "lost") or (attempt["no"] == last and task["phase"] == "failed"):
                continue
            found = attempt.get("diagnosis")
            why = pick(found, "summary") if isinstance(found, dict) else None
            then = "; tried again" if attempt["no"] < last else ""
            yield task["key"], f"#{attempt['no']} {attempt['phase']}: {why or attempt.get('message') or ''}{then}"


def _ranks(run_id: Any, tasks: Iterable[Row]) -> Iterable[tuple[str, str]]:
    """How many processes a distributed task has, and how to read the logs of each."""
    for task in tasks:
        count = len(task["attempts"][-1].get("ranks") or []) if task["attempts"] else 0
        if count > 1:
            yield task["key"], f"{count}; the log of one: cube logs {run_id} {task['key']} --rank 0 (to {count - 1})"


def _diagnoses(tasks: Iterable[Row]) -> Iterable[tuple[str, str]]:
    """The cause of each failed task and what to do, from its last attempt."""
    for task in tasks:
        last = task["attempts"][-1] if task["attempts"] else {}
        found = last.get("diagnosis") if task["phase"] == "failed" else None
        if isinstance(found, dict):
            detail = found.get("detail")
            summary = ": ".join(str(part) for part in (pick(found, "summary", "cause"), detail) if part)
            said = [summary, pick(found, "resolution")]
            yield task["key"], " -> ".join(str(part) for part in said if part)


def _show_pipeline(pipeline: Row) -> None:
    schedule = pipeline.get("schedule") or {}
    print(
        details(
            [
                ("Pipeline", pipeline["name"]),
                ("Id", pipeline["id"]),
                ("Project", pipeline["project"]),
                ("Title", pipeline.get("title")),
                ("Description", pipeline.get("description")),
                ("Version", pipeline.get("version")),
                ("Changed", moment(pipeline.get("updated_at"))),
                ("By", pipeline.get("created_by")),
                ("Schedule", _schedule(schedule)),
                ("Next times", show.moments(schedule.get("next_times", []), str(schedule.get("timezone") or "UTC"))),
            ]
        )
    )
    params = pipeline.get("params") or []
    if params:
        print(f"\n{_arguments(params, 'PARAMETER')}")
    tasks = ((pipeline.get("document") or {}).get("spec") or {}).get("tasks") or []
    if tasks:
        rows = [
            [
                t.get("name"),
                t.get("template") or pick(t, "job.framework"),
                ", ".join(t.get("dependsOn") or []),
                _short(t.get("title")),
            ]
            for t in tasks
        ]
        print(f"\n{table(rows, ['TASK', 'TEMPLATE', 'AFTER', 'TITLE'])}")


def _show_template(template: Row) -> None:
    print(
        details(
            [
                ("Template", template["name"]),
                ("Title", template.get("title")),
                ("Description", template.get("description")),
                ("Framework", template.get("framework")),
                ("Category", template.get("category")),
                ("Version", template.get("version")),
                ("Resources", template.get("resources")),
            ]
        )
    )
    if args := template.get("args"):
        print(f"\n{_arguments(args, 'ARGUMENT')}")
    if outputs := template.get("outputs"):
        rows = [[o["name"], o.get("type", "str"), o.get("description") or ""] for o in outputs]
        print(f"\n{table(rows, ['OUTPUT', 'TYPE', 'DESCRIPTION'], wrap=show.columns())}")


def _arguments(rows: Iterable[Row], head: str) -> str:
    """Parameters or arguments with what they may be, in whole words."""
    cells = [
        [row["name"], row.get("type", "str"), "required" if row.get("required") else _default(row), _about(row)]
        for row in rows
    ]
    return table(cells, [head, "TYPE", "DEFAULT", "DESCRIPTION"], wrap=show.columns())


def _default(row: Row) -> str:
    value = row.get("default")
    if value is None:
        return ""
    return _short(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), 40)


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _about(row: Row) -> str:
    """`Trees of the forest (1 to 1000)`, `How to average (one of: macro, micro)`."""
    low, high, choices = _number(row.get("min")), _number(row.get("max")), row.get("choices")
    bounds = {
        (True, True): f"{low} to {high}", (True, False): f"at least {low}", (False, True): f"at most {high}",
    }.get((low is not None, high is not None))
    allowed = [
        f"one of: {', '.join(str(choice) for choice in choices)}" if choices else None,
        bounds,
        f"like {row['pattern']}" if row.get("pattern") else None,
    ]
    said = "; ".join(part for part in allowed if part)
    text = str(row.get("description") or "")
    return f"{text} ({said})".strip() if said else text


def _show_project(project: Row) -> None:
    names = ("slug", "title", "description", "backend", "namespace", "role", "created_by")
    print(details((name.replace("_", " ").capitalize(), project.get(name)) for name in names))
    members = project.get("members") or []
    if members:
        print(f"\n{table([[m.get('username'), m.get('role')] for m in members], ['MEMBER', 'ROLE'])}")


def _section(title: str, pairs: Iterable[tuple[str, Any]]) -> None:
    text = details(pairs, indent="  ")
    if text:
        print(f"\n{title}\n{text}")


def _schedule(schedule: Row | None) -> str:
    if not schedule:
        return ""
    return f"{schedule.get('cron')} {schedule.get('timezone')}" + (" (paused)" if schedule.get("paused") else "")


def _short(value: Any, most: int = 60) -> str:
    text = show.safe(str(value or ""))
    return text if len(text) <= most else text[: most - 1] + "…"
