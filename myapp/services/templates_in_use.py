"""The published template versions that a pipeline document refers to, as validation sees them."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, RowMapping

from myapp.domain.template import JobTemplateSpec, TemplateView
from myapp.persistence.repositories import templates
from myapp.persistence.scope import TenantScope

_MIN_PREFIX = 6


def template_views(connection: Connection, scope: TenantScope, references: Iterable[str]) -> dict[str, TemplateView]:
    """By name, and by the whole `name@prefix` where a version is asked for.

    A retired template has no entry under its name. When a reference is unknown, all that are visible are there too, so
    that the nearest can be suggested.
    """
    wanted = sorted(set(references))
    names = {reference.partition("@")[0] for reference in wanted}
    chosen = _choose(templates.versions_named(connection, scope, names), wanted)
    if any(reference not in chosen for reference in wanted):
        known = templates.template_names(connection, scope)
        chosen = {**_choose(templates.versions_named(connection, scope, known), known), **chosen}
    documents = templates.documents_of(connection, scope, [row["id"] for row in chosen.values()])
    specs = {
        version_id: JobTemplateSpec.model_validate(row["document"]["spec"]) for version_id, row in documents.items()
    }
    return {key: TemplateView(row["name"], row["sha256"], specs[row["id"]]) for key, row in chosen.items()}


def _choose(rows: Iterable[RowMapping], references: Iterable[str]) -> dict[str, RowMapping]:
    by_name: dict[str, list[RowMapping]] = {}
    for row in rows:
        by_name.setdefault(row["name"], []).append(row)
    chosen: dict[str, RowMapping] = {}
    for reference in references:
        name, at, prefix = reference.partition("@")
        versions = by_name.get(name, [])
        for row in versions:
            if row["current"] and not row["retired"]:
                chosen[name] = row
        if at and len(prefix) >= _MIN_PREFIX:
            matching = [row for row in versions if row["sha256"].startswith(prefix)]
            if len(matching) == 1:
                chosen[reference] = matching[0]
    return chosen
