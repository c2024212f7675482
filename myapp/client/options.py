"""What the command lines of all `cube` commands have in common."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable


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


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """`Did you mean 'wine'?`, or None when nothing is near."""
    import difflib

    close = difflib.get_close_matches(word.lower(), list(known), n=1, cutoff=0.6)
    return f"Did you mean '{close[0]}'?" if close else None


def one_of(words: tuple[str, ...]) -> Callable[[str], str]:
    """For argparse: a word that is not among these is refused with the nearest."""

    def check(word: str) -> str:
        if word in words:
            return word
        known = f"known: {', '.join(words)}"
        raise argparse.ArgumentTypeError(f"there is no '{word}'. {did_you_mean(word, words) or known}")

    return check


def positive(text: str) -> int:
    value = natural(text)
    if value == 0:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def natural(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)
