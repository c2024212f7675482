"""Who may do what. Permissions are named once, here; roles are sets of them; `Actor.require` is the only check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from myapp.domain.errors import Forbidden, NotFound


class Permission(StrEnum):
    """`<scope>:<resource>:<action>`; scope `project` needs a role in that project, `site` an administrator."""

    ARTIFACT_READ = "project:artifact:read"
    JOB_SUBMIT = "project:job:submit"
    LOG_READ = "project:log:read"
    MEMBER_MANAGE = "project:member:manage"
    PIPELINE_DELETE = "project:pipeline:delete"
    PIPELINE_READ = "project:pipeline:read"
    PIPELINE_WRITE = "project:pipeline:write"
    PROJECT_READ = "project:project:read"
    PROJECT_WRITE = "project:project:write"
    RUN_CANCEL = "project:run:cancel"
    RUN_READ = "project:run:read"
    RUN_SUBMIT = "project:run:submit"
    SCHEDULE_WRITE = "project:schedule:write"
    TEMPLATE_WRITE = "project:template:write"
    CATALOG_SYNC = "site:catalog:sync"
    METRICS_READ = "site:metrics:read"
    PROJECT_CREATE = "site:project:create"
    USER_MANAGE = "site:user:manage"
    TEMPLATE_READ = "user:template:read"
    SELF = "user:self:use"             # any signed-in user, about themselves
    PUBLIC = "public"                  # no sign-in: health, login, static files


class Role(StrEnum):
    OWNER = "owner"
    OPS = "ops"
    DEV = "dev"
    VIEWER = "viewer"


_VIEWER = frozenset(
    {
        Permission.ARTIFACT_READ,
        Permission.LOG_READ,
        Permission.PIPELINE_READ,
        Permission.PROJECT_READ,
        Permission.RUN_READ,
    }
)
_OPS = _VIEWER | {Permission.RUN_CANCEL, Permission.RUN_SUBMIT, Permission.SCHEDULE_WRITE}
_DEV = _OPS | {Permission.JOB_SUBMIT, Permission.PIPELINE_WRITE, Permission.PIPELINE_DELETE, Permission.TEMPLATE_WRITE}
_OWNER = _DEV | {Permission.MEMBER_MANAGE, Permission.PROJECT_WRITE}

ROLE_PERMISSIONS: dict[Role, frozenset[Permission]] = {
    Role.VIEWER: _VIEWER,
    Role.OPS: _OPS,
    Role.DEV: _DEV,
    Role.OWNER: _OWNER,
}
_ANY_USER = frozenset({Permission.SELF, Permission.TEMPLATE_READ})


@dataclass(frozen=True)
class Actor:
    """Somebody (or the platform itself) acting. `roles` maps project id to role."""

    user_id: int
    username: str
    is_admin: bool = False
    roles: Mapping[int, Role] = field(default_factory=dict)
    address: str = ""

    def sees(self, project_id: int) -> bool:
        return self.is_admin or project_id in self.roles

    def can(self, permission: Permission, project_id: int | None = None) -> bool:
        if permission is Permission.PUBLIC or self.is_admin or permission in _ANY_USER:
            return True
        if project_id is None or permission.startswith("site:"):
            return False
        role = self.roles.get(project_id)
        return role is not None and permission in ROLE_PERMISSIONS[role]

    def require(self, permission: Permission, project_id: int | None = None, *, what: str = "this") -> None:
        """Raise NotFound for what may not be seen, Forbidden for what may be seen but not done."""
        if self.can(permission, project_id):
            return
        if project_id is not None and not self.sees(project_id):
            raise NotFound(f"{what} was not found", resolution="Check the name, or ask the project's owner for access.")
        role = self.roles.get(project_id) if project_id is not None else None
        raise Forbidden(
            f"{self.username} may not do this: it needs the permission {permission.value}"
            + (f", which the role {role.value} does not have" if role else ""),
            resolution="Ask an owner of the project (or an administrator) for a role that has it.",
        )


PLATFORM = Actor(user_id=0, username="platform", is_admin=True)
