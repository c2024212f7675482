"""Make a project."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.exc import IntegrityError

from myapp.domain.errors import Conflict, Invalid, invalid_document
from myapp.domain.naming import check_slug
from myapp.domain.permissions import PLATFORM, Actor, Permission, Role
from myapp.persistence.repositories import projects
from myapp.persistence.scope import TenantScope
from myapp.persistence.unit_of_work import UnitOfWork
from myapp.services.context import Context
from myapp.services.transactions import audit, write

PUBLIC = "public"
MAX_TITLE, MAX_DESCRIPTION = 200, 2000


@dataclass(frozen=True)
class CreatedProject:
    id: int
    slug: str


def create_project(
    ctx: Context, actor: Actor, *, slug: str, title: str = "", description: str = "", backend: str = "local"
) -> CreatedProject:
    """The creator becomes its owner. Raises Forbidden, Invalid (bad slug or text), Conflict (the slug is taken)."""
    actor.require(Permission.PROJECT_CREATE)
    if (problem := check_slug(slug, "slug")) is not None:
        raise invalid_document("the project", [problem])
    check_texts(title, description)

    def work(unit: UnitOfWork) -> int:
        if projects.find_project(unit.connection, TenantScope.platform(), slug) is not None:
            raise Conflict(
                f"the project {slug} exists already", code="project_exists", resolution="choose another slug"
            )
        return _insert(unit, actor, slug, title or slug, description, backend)

    return CreatedProject(write(ctx.database, work), slug)


def ensure_public_project(ctx: Context) -> int:
    """The id of the project `public`, which every platform has; safe to call from many processes at once."""
    with ctx.database.read() as connection:
        found = projects.find_project(connection, TenantScope.platform(), PUBLIC)
    if found is not None:
        return int(found["id"])
    try:
        with ctx.database.write() as unit:
            return _insert(unit, PLATFORM, PUBLIC, "Public", "Shared by every user of this platform.", "local")
    except IntegrityError:
        with ctx.database.read() as connection:
            found = projects.find_project(connection, TenantScope.platform(), PUBLIC)
        if found is None:
            raise
        return int(found["id"])


def check_texts(title: str, description: str) -> None:
    """Raises Invalid for text that is too long or not text."""
    for name, value, most in (("title", title, MAX_TITLE), ("description", description, MAX_DESCRIPTION)):
        if not isinstance(value, str) or len(value) > most or "\0" in value:
            raise Invalid(f"{name}: must be text of at most {most} characters", code="bad_length")


def _insert(unit: UnitOfWork, actor: Actor, slug: str, title: str, description: str, backend: str) -> int:
    project_id = projects.insert_project(
        unit.connection,
        slug=slug,
        title=title,
        description=description,
        namespace=slug,
        backend=backend,
        created_by=actor.username[:64],
        created_at=unit.now,
    )
    if actor.user_id:
        projects.insert_member(
            unit.connection, project_id=project_id, user_id=actor.user_id, role=str(Role.OWNER), created_at=unit.now
        )
    audit(unit, actor, Permission.PROJECT_CREATE, f"project:{slug}", project_id=project_id)
    return project_id
