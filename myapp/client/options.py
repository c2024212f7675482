"""What the command lines of all `cube` commands have in common."""

from __future__ import annotations

import argparse


class Formatter(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30)


class Commands:
    """Adds commands with the options that all of a kind share."""

    def __init__(self, commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
        self._commands = commands

    def add(
        self, name: str, target: str | None, what: str, *, example: str = "", url: bool = False, json: bool = False
    ) -> argparse.ArgumentParser:
        command = self._commands.add_parser(
            name,
            help=what,
            description=what[0].upper() + what[1:] + ".",
            formatter_class=Formatter,
            epilog=f"examples:\n{example}" if example else None,
        )
        if target:
            command.set_defaults(target=target)
        command.set_defaults(group=command)
        if url:
            command.add_argument(
                "--url", metavar="URL", help="the server, e.g. http://localhost:8080 (default: see cube --help)"
            )
        if json:
            command.add_argument("--json", action="store_true", help="print JSON")
        return command


def positive(text: str) -> int:
    value = natural(text)
    if value == 0:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def natural(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)
