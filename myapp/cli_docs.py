"""`cube docs FOLDER`: the reference pages that are made from the code, so that they cannot be wrong."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path

_MADE = "<!-- Made by `make docs` from the code: change it there. -->"


def write(args: argparse.Namespace) -> int:
    """Write `settings.md` and `cli.md`."""
    folder = Path(args.folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("settings.md", settings_page()), ("cli.md", cli_page())):
        (folder / name).write_text(text, encoding="utf-8")
        print(folder / name)
    return 0


def settings_page() -> str:
    from myapp.config import Settings

    lines = [
        "# Settings",
        "",
        _MADE,
        "",
        "Each is an environment variable, or a line `NAME=value` in `$CUBE_HOME/cube.env`; the environment wins.",
        "",
        "| Variable | Default | What it does |",
        "|-|-|-|",
    ]
    for name, field in Settings.model_fields.items():
        default = "this machine's name" if name == "node" else _default(field.default)
        lines.append(f"| `CUBE_{name.upper()}` | {default} | {_cell(field.description or '')} |")
    return "\n".join(lines) + "\n"


def _default(value: object) -> str:
    secret = getattr(value, "get_secret_value", None)
    shown = str(secret() if secret else value)
    return f"`{_cell(shown)}`" if shown not in ("", "None", "{}") else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def cli_page() -> str:
    from myapp.cli import parser

    os.environ["COLUMNS"] = "100"  # what argparse wraps at
    root = parser()
    lines = ["# The `cube` command", "", _MADE, ""]
    lines += ["```", _help(root), "```", ""]
    for name, command in _commands(root):
        lines += [f"## cube {name}", "", "```", _help(command), "```", ""]
    return "\n".join(lines)


def _commands(parser: argparse.ArgumentParser, prefix: str = "") -> list[tuple[str, argparse.ArgumentParser]]:
    found: list[tuple[str, argparse.ArgumentParser]] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                found.append((f"{prefix}{name}", command))
                found += _commands(command, f"{prefix}{name} ")
    return found


def _help(parser: argparse.ArgumentParser) -> str:
    return re.sub(r"[ \t]+$", "", parser.format_help().strip(), flags=re.MULTILINE)
