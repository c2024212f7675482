"""From what a person writes (a name, `project/name`, an id) to the row that is meant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from myapp.client.errors import ClientError
from myapp.client.http import Api, segment
from myapp.client.options import did_you_mean

_PAGE = 200
_MOST_PAGES = 50
_MOST_NAMED = 30


def pages(api: Api, path: str, *, limit: int | None = None, **query: Any) -> Iterator[dict[str, Any]]:
    """The rows of a list, page after page."""
    left = limit if limit is not None else _PAGE * _MOST_PAGES
    for number in range(_MOST_PAGES):
        size = min(_PAGE, left)
        rows = api.get(path, page=number, page_size=_PAGE if left > _PAGE else size, **query).get("result", [])
        yield from rows[:left]
        left -= len(rows)
        if len(rows) < size or left <= 0:
            return


def pipeline_id(api: Api, reference: str, project: str | None) -> int:
    """The id of the pipeline called `name`, `project/name`, or that id. Raises ClientError when none or several are."""
    if reference.isdecimal():
        return int(reference)
    if "/" in reference and project is None:
        project, _, reference = reference.partition("/")
    named = list(pages(api, "/pipeline/", project=project, name=reference, limit=20))
    if not named:
        known = sorted({str(row.get("name")) for row in pages(api, "/pipeline/", project=project, limit=_PAGE)})
        more = ", ..." if len(known) > _MOST_NAMED else ""
        hint = did_you_mean(reference, known) or f"Known: {', '.join(known[:_MOST_NAMED])}{more}"
        raise ClientError(
            f"there is no pipeline {reference}" + (f" in the project {project}" if project else ""),
            hint if known else "Create one: cube apply -f pipeline.yaml",
        )
    if len(named) > 1:
        places = ", ".join(f"{row.get('project')}/{reference}" for row in named)
        raise ClientError(f"several projects have a pipeline {reference}", f"Say which: {places}")
    return int(named[0]["id"])


def pipeline(api: Api, reference: str, project: str | None) -> dict[str, Any]:
    found = api.get(f"/pipeline/{segment(pipeline_id(api, reference, project))}")
    return dict(found.get("result", found))


def param_types(api: Api, identifier: int) -> dict[str, str]:
    """The types of a pipeline's parameters, by name: they decide how `-p name=value` is read."""
    found = api.get(f"/pipeline/{segment(identifier)}")["result"]
    return {str(param.get("name")): str(param.get("type", "str")) for param in found.get("params") or []}


def run_id(value: str) -> int:
    if not value.isdecimal():
        raise ClientError(
            f"{value!r} is not a run", "A run is named by its number: cube get runs lists them.", exit_code=2
        )
    return int(value)


def only_task(run: dict[str, Any], wanted: str | None) -> str:
    """The task whose log is meant: the one named, or the run's only one."""
    keys = [str(task["key"]) for task in run.get("tasks") or []]
    if wanted is None and len(keys) == 1:
        return keys[0]
    if wanted in keys:
        return str(wanted)
    said = f"run {run.get('id')} has no task {wanted}" if wanted else f"run {run.get('id')} has {len(keys)} tasks"
    close = did_you_mean(wanted, keys) if wanted else None
    raise ClientError(said, close or f"Name one: {', '.join(keys[:40])}")
