"""Projects and members: slugs, roles, the last owner, and the project everybody is in."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from myapp.domain.errors import Conflict, CubeError, Forbidden, Invalid, NotFound
from myapp.domain.permissions import PLATFORM, Actor, Role
from myapp.persistence.database import Database
from myapp.services.context import Context
from myapp.services.create_project import create_project, ensure_public_project
from myapp.services.members import ensure_membership, remove_member, set_member
from myapp.services.read_projects import describe_project, list_members, list_projects, roles_of
from tests.conftest import _execute
from tests.factories.platform import add_user, make_context

USERS = {7: "ada", 8: "bob", 9: "cyd"}


@pytest.fixture
def context(database: Database, tmp_path: Path) -> Context:
    _execute(database.url, "DELETE FROM ab_user WHERE id IN (7, 8, 9)")
    for user_id, name in USERS.items():
        add_user(database, user_id, name)
    return make_context(database, tmp_path, catalog=False)


def admin(user_id: int) -> Actor:
    return Actor(user_id, USERS[user_id], is_admin=True)


def test_the_creator_owns_it_and_members_come_and_go(context: Context) -> None:
    made = create_project(context, admin(7), slug="vision", title="Vision")
    owner = Actor(7, "ada", roles={made.id: Role.OWNER})
    set_member(context, owner, project="vision", username="bob", role="viewer")
    set_member(context, owner, project="vision", username="bob", role="dev")
    assert [(m["username"], m["role"]) for m in list_members(context, owner, "vision")] == [
        ("ada", "owner"),
        ("bob", "dev"),
    ]
    assert roles_of(context, 8) == {made.id: Role.DEV}
    bob = Actor(8, "bob", roles=roles_of(context, 8))
    with pytest.raises(Forbidden):
        set_member(context, bob, project="vision", username="cyd", role="dev")
    seen = describe_project(context, bob, "vision")
    assert (
        seen["role"],
        "project:run:submit" in seen["permissions"],
        "project:member:manage" in seen["permissions"],
    ) == ("dev", True, False)
    remove_member(context, owner, project="vision", username="bob")
    assert roles_of(context, 8) == {}
    with pytest.raises(NotFound):
        remove_member(context, owner, project="vision", username="bob")


def test_a_project_keeps_an_owner(context: Context) -> None:
    create_project(context, admin(7), slug="vision")
    changes: list[Callable[[], None]] = [
        lambda: remove_member(context, PLATFORM, project="vision", username="ada"),
        lambda: set_member(context, PLATFORM, project="vision", username="ada", role="dev"),
    ]
    for change in changes:
        with pytest.raises(Conflict) as caught:
            change()
        assert caught.value.code == "last_owner"
    set_member(context, PLATFORM, project="vision", username="bob", role="owner")
    remove_member(context, PLATFORM, project="vision", username="ada")
    assert [m["username"] for m in list_members(context, PLATFORM, "vision")] == ["bob"]


def test_two_owners_cannot_remove_each_other_at_once(context: Context) -> None:
    create_project(context, admin(7), slug="vision")
    set_member(context, PLATFORM, project="vision", username="bob", role="owner")

    def leave(username: str) -> bool:
        try:
            remove_member(context, PLATFORM, project="vision", username=username)
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        left = list(pool.map(leave, ("ada", "bob")))
    assert sorted(left) == [False, True]
    assert len(list_members(context, PLATFORM, "vision")) == 1


@pytest.mark.parametrize(
    ("slug", "error"),
    [
        ("Vision", Invalid),
        ("v", Invalid),
        ("../etc", Invalid),
        ("a" * 33, Invalid),
        ("vision\n", Invalid),
        ("taken", Conflict),
    ],
)
def test_a_bad_or_taken_slug_is_refused(context: Context, slug: str, error: type[CubeError]) -> None:
    create_project(context, PLATFORM, slug="taken")
    with pytest.raises(error):
        create_project(context, PLATFORM, slug=slug)
    assert [p["slug"] for p in list_projects(context, PLATFORM).result] == ["taken"]


@pytest.mark.parametrize(("username", "role", "error"), [("nobody", "dev", NotFound), ("bob", "boss", Invalid)])
def test_a_bad_member_is_refused(context: Context, username: str, role: str, error: type[CubeError]) -> None:
    create_project(context, admin(7), slug="vision")
    with pytest.raises(error):
        set_member(context, PLATFORM, project="vision", username=username, role=role)


def test_only_administrators_make_projects(context: Context) -> None:
    with pytest.raises(Forbidden):
        create_project(context, Actor(8, "bob"), slug="vision")


def test_everybody_gets_the_public_project_once(context: Context) -> None:
    with ThreadPoolExecutor(6) as pool:
        ids = set(pool.map(lambda _: ensure_public_project(context), range(6)))
        list(pool.map(lambda _: ensure_membership(context, 8), range(6)))
    assert len(ids) == 1
    assert roles_of(context, 8) == {ids.pop(): Role.DEV}
    set_member(context, PLATFORM, project="public", username="bob", role="viewer")
    ensure_membership(context, 8)
    assert list(roles_of(context, 8).values()) == [Role.VIEWER]
    with pytest.raises(NotFound):
        ensure_membership(context, 8, project="nosuch")
