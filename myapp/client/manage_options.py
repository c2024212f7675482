"""The command lines of `cube project|user|token|schedule|artifact`."""

from __future__ import annotations

import argparse

from myapp.client.options import Commands, positive

_HERE = "myapp.client.manage"
_ROLES = ("owner", "ops", "dev", "viewer")


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    _project(_group(commands, "project", "make projects, and say who belongs to them"))
    _user(_group(commands, "user", "make users (administrators)"))
    _token(_group(commands, "token", "one's own API tokens, for programs"))
    _schedule(_group(commands, "schedule", "pause and resume schedules"))
    _artifact(_group(commands, "artifact", "files that tasks have left"))


def _group(commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, what: str) -> Commands:
    return Commands(Commands(commands).add(name, None, what).add_subparsers(metavar="ACTION"))


def _project(actions: Commands) -> None:
    create = actions.add("create", f"{_HERE}:project_create", "make a project (administrators)", url=True,
                         example="  cube project create vision --title Vision")
    create.add_argument("project", metavar="SLUG", help="2 to 32 of a-z, 0-9 and -")
    create.add_argument("--title", default="", metavar="TEXT")
    create.add_argument("--description", default="", metavar="TEXT")

    members = actions.add("members", f"{_HERE}:project_members", "who belongs to a project, and as what", url=True,
                          json=True)
    members.add_argument("project", metavar="SLUG")

    enter = actions.add("add-member", f"{_HERE}:project_add_member", "add a user to a project, or change their role",
                        url=True, example="  cube project add-member vision ada --role dev")
    enter.add_argument("project", metavar="SLUG")
    enter.add_argument("username", metavar="USER")
    enter.add_argument("--role", choices=_ROLES, default="dev", help="what they may do there (default: dev)")

    leave = actions.add("remove-member", f"{_HERE}:project_remove_member", "take a user out of a project", url=True)
    leave.add_argument("project", metavar="SLUG")
    leave.add_argument("username", metavar="USER")


def _user(actions: Commands) -> None:
    create = actions.add("create", f"{_HERE}:user_create", "make a user; the password is asked for", url=True,
                         example="  cube user create ada --email ada@example.org\n"
                                 "  cube user create ada < password.txt")
    create.add_argument("username", metavar="NAME")
    create.add_argument("--email", default="", metavar="ADDRESS", help="default: NAME@localhost")
    create.add_argument("--first-name", default="", metavar="TEXT")
    create.add_argument("--last-name", default="", metavar="TEXT")
    create.add_argument("--admin", action="store_true", help="an administrator of the whole platform")


def _token(actions: Commands) -> None:
    create = actions.add("create", f"{_HERE}:token_create", "make a token; it is shown this once", url=True, json=True,
                         example="  cube token create ci --days 30\n  cube token create ci --forever > token.txt")
    create.add_argument("name", metavar="NAME", help="what it is for")
    create.add_argument("--days", type=positive, default=90, metavar="N", help="how long it is valid (default: 90)")
    create.add_argument("--forever", action="store_true", help="valid until it is revoked")

    actions.add("list", f"{_HERE}:token_list", "one's tokens that are not revoked", url=True, json=True)

    revoke = actions.add("revoke", f"{_HERE}:token_revoke", "end a token at once", url=True)
    revoke.add_argument("token", metavar="NAME", help="its name or id")


def _schedule(actions: Commands) -> None:
    for name, what in (("pause", "pause a pipeline's schedule"),
                       ("resume", "resume a pipeline's schedule; what was missed follows its catch-up policy")):
        action = actions.add(name, f"{_HERE}:schedule_{name}", what, url=True)
        action.add_argument("pipeline", metavar="PIPELINE", help="name, project/name or id")
        action.add_argument("--project", metavar="SLUG", help="the pipeline's project")


def _artifact(actions: Commands) -> None:
    get = actions.add("get", f"{_HERE}:artifact_get", "download an artifact; a folder comes as a zip archive", url=True,
                      example="  cube artifact get 12 train model\n"
                              "  cube artifact get 12 evaluate report/index.html -o report.html")
    get.add_argument("run", metavar="RUN")
    get.add_argument("task", metavar="TASK")
    get.add_argument("name", metavar="NAME", help="its name; a file of a folder: NAME/PATH")
    get.add_argument("-o", "--output", metavar="FILE", help="where to (default: its name, here); - is standard output")
