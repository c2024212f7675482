"""Job templates. Those of the catalogue (no project) are visible to everybody, a project's to its members."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, RowMapping, func, or_, select, update

from myapp.persistence.scope import TenantScope
from myapp.persistence.tables import JOB_TEMPLATE, JOB_TEMPLATE_VERSION, PROJECT, insert_row

_IN_CHUNK = 500


def _visible(scope: TenantScope) -> ColumnElement[bool]:
    return or_(JOB_TEMPLATE.c.project_id.is_(None), scope.where(JOB_TEMPLATE.c.project_id))


def list_templates(
    connection: Connection,
    scope: TenantScope,
    *,
    category: str = "",
    contains: str = "",
    retired: bool = False,
    limit: int,
    offset: int = 0,
) -> Sequence[RowMapping]:
    """In the order of category and name, with the current version's `document`, `version` and `sha256`."""
    query = (
        select(
            JOB_TEMPLATE,
            PROJECT.c.slug.label("project"),
            JOB_TEMPLATE_VERSION.c.document,
            JOB_TEMPLATE_VERSION.c.number.label("version"),
            JOB_TEMPLATE_VERSION.c.sha256,
        )
        .join(JOB_TEMPLATE_VERSION, JOB_TEMPLATE_VERSION.c.id == JOB_TEMPLATE.c.current_version_id)
        .join(PROJECT, PROJECT.c.id == JOB_TEMPLATE.c.project_id, isouter=True)
        .where(*_conditions(scope, category, contains, retired))
    )
    return (
        connection.execute(query.order_by(JOB_TEMPLATE.c.category, JOB_TEMPLATE.c.name).limit(limit).offset(offset))
        .mappings()
        .all()
    )


def count_templates(
    connection: Connection, scope: TenantScope, *, category: str = "", contains: str = "", retired: bool = False
) -> int:
    return int(
        connection.execute(
            select(func.count()).select_from(JOB_TEMPLATE).where(*_conditions(scope, category, contains, retired))
        ).scalar_one()
    )


def _conditions(scope: TenantScope, category: str, contains: str, retired: bool) -> list[ColumnElement[bool]]:
    found = [_visible(scope), JOB_TEMPLATE.c.current_version_id.is_not(None)]
    if category:
        found.append(JOB_TEMPLATE.c.category == category)
    if contains:
        found.append(JOB_TEMPLATE.c.name.contains(contains, autoescape=True))
    if not retired:
        found.append(JOB_TEMPLATE.c.retired.is_(False))
    return found


def find_template(connection: Connection, scope: TenantScope, name: str) -> RowMapping | None:
    """The template with its current version's `document, files, version, sha256`."""
    return (
        connection.execute(
            select(
                JOB_TEMPLATE,
                PROJECT.c.slug.label("project"),
                JOB_TEMPLATE_VERSION.c.document,
                JOB_TEMPLATE_VERSION.c.files,
                JOB_TEMPLATE_VERSION.c.number.label("version"),
                JOB_TEMPLATE_VERSION.c.sha256,
            )
            .join(JOB_TEMPLATE_VERSION, JOB_TEMPLATE_VERSION.c.id == JOB_TEMPLATE.c.current_version_id)
            .join(PROJECT, PROJECT.c.id == JOB_TEMPLATE.c.project_id, isouter=True)
            .where(JOB_TEMPLATE.c.name == name, _visible(scope))
        )
        .mappings()
        .one_or_none()
    )


def versions_named(connection: Connection, scope: TenantScope, names: Iterable[str]) -> Sequence[RowMapping]:
    """Every version of the named templates, newest first: `name, retired, id, number, sha256, current, project_id`."""
    wanted = sorted(set(names))
    found: list[RowMapping] = []
    for start in range(0, len(wanted), _IN_CHUNK):
        found.extend(
            connection.execute(
                select(
                    JOB_TEMPLATE.c.name,
                    JOB_TEMPLATE.c.retired,
                    JOB_TEMPLATE.c.project_id,
                    JOB_TEMPLATE_VERSION.c.id,
                    JOB_TEMPLATE_VERSION.c.number,
                    JOB_TEMPLATE_VERSION.c.sha256,
                    (JOB_TEMPLATE_VERSION.c.id == JOB_TEMPLATE.c.current_version_id).label("current"),
                )
                .join(JOB_TEMPLATE_VERSION, JOB_TEMPLATE_VERSION.c.job_template_id == JOB_TEMPLATE.c.id)
                .where(JOB_TEMPLATE.c.name.in_(wanted[start : start + _IN_CHUNK]), _visible(scope))
                .order_by(JOB_TEMPLATE.c.name, JOB_TEMPLATE_VERSION.c.number.desc())
            ).mappings()
        )
    return found


def documents_of(connection: Connection, scope: TenantScope, version_ids: Iterable[int]) -> dict[int, RowMapping]:
    """version id -> its `document` and `files`."""
    wanted = sorted(set(version_ids))
    found: dict[int, RowMapping] = {}
    for start in range(0, len(wanted), _IN_CHUNK):
        rows = connection.execute(
            select(JOB_TEMPLATE_VERSION.c.id, JOB_TEMPLATE_VERSION.c.document, JOB_TEMPLATE_VERSION.c.files)
            .join(JOB_TEMPLATE, JOB_TEMPLATE.c.id == JOB_TEMPLATE_VERSION.c.job_template_id)
            .where(JOB_TEMPLATE_VERSION.c.id.in_(wanted[start : start + _IN_CHUNK]), _visible(scope))
        ).mappings()
        found.update((row["id"], row) for row in rows)
    return found


def template_names(connection: Connection, scope: TenantScope) -> list[str]:
    """The names of all templates one may use, for suggestions."""
    return list(
        connection.execute(
            select(JOB_TEMPLATE.c.name)
            .where(_visible(scope), JOB_TEMPLATE.c.retired.is_(False))
            .order_by(JOB_TEMPLATE.c.name)
        ).scalars()
    )


def lock_template(connection: Connection, scope: TenantScope, name: str) -> RowMapping | None:
    """The template's row, locked; also one the scope does not see is None here, though its name is taken."""
    return (
        connection.execute(select(JOB_TEMPLATE).where(JOB_TEMPLATE.c.name == name, _visible(scope)).with_for_update())
        .mappings()
        .one_or_none()
    )


def lock_catalog(connection: Connection) -> Sequence[RowMapping]:
    """All templates of the catalogue, locked: syncs queue here."""
    return (
        connection.execute(
            select(JOB_TEMPLATE)
            .where(JOB_TEMPLATE.c.project_id.is_(None))
            .order_by(JOB_TEMPLATE.c.name)
            .with_for_update()
        )
        .mappings()
        .all()
    )


def taken_names(connection: Connection, names: Iterable[str]) -> set[str]:
    """Those of the names that a template of some project has."""
    wanted = sorted(set(names))
    return {
        name
        for start in range(0, len(wanted), _IN_CHUNK)
        for name in connection.execute(
            select(JOB_TEMPLATE.c.name).where(
                JOB_TEMPLATE.c.name.in_(wanted[start : start + _IN_CHUNK]), JOB_TEMPLATE.c.project_id.is_not(None)
            )
        ).scalars()
    }


def name_exists(connection: Connection, name: str) -> bool:
    """Whether any template, also one that is not visible, has the name: names are the platform's."""
    return connection.execute(select(JOB_TEMPLATE.c.id).where(JOB_TEMPLATE.c.name == name)).first() is not None


def find_version(connection: Connection, scope: TenantScope, template_id: int, sha256: str) -> RowMapping | None:
    """`id` and `number` of the template's version with this content."""
    return (
        connection.execute(
            select(JOB_TEMPLATE_VERSION.c.id, JOB_TEMPLATE_VERSION.c.number)
            .join(JOB_TEMPLATE, JOB_TEMPLATE.c.id == JOB_TEMPLATE_VERSION.c.job_template_id)
            .where(
                JOB_TEMPLATE_VERSION.c.job_template_id == template_id,
                JOB_TEMPLATE_VERSION.c.sha256 == sha256,
                _visible(scope),
            )
        )
        .mappings()
        .one_or_none()
    )


def last_number(connection: Connection, scope: TenantScope, template_id: int) -> int:
    return int(
        connection.execute(
            select(func.coalesce(func.max(JOB_TEMPLATE_VERSION.c.number), 0))
            .join(JOB_TEMPLATE, JOB_TEMPLATE.c.id == JOB_TEMPLATE_VERSION.c.job_template_id)
            .where(JOB_TEMPLATE_VERSION.c.job_template_id == template_id, _visible(scope))
        ).scalar_one()
    )


def insert_template(connection: Connection, **values: Any) -> int:
    return insert_row(connection, JOB_TEMPLATE, values)


def insert_version(connection: Connection, **values: Any) -> int:
    return insert_row(connection, JOB_TEMPLATE_VERSION, values)


def update_template(connection: Connection, scope: TenantScope, template_id: int, **values: Any) -> bool:
    return (
        connection.execute(
            update(JOB_TEMPLATE).where(JOB_TEMPLATE.c.id == template_id, _visible(scope)).values(**values)
        ).rowcount
        == 1
    )
