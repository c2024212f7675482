"""The reference pages that are made from the code are up to date."""

from __future__ import annotations

from pathlib import Path

from myapp.cli_docs import cli_page, settings_page

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"


def test_the_settings_page_is_that_of_the_code() -> None:
    assert (REFERENCE / "settings.md").read_text(encoding="utf-8") == settings_page(), "say `make docs`"


def test_every_command_is_on_the_page() -> None:
    """By name only: the layout of help texts differs between versions of Python."""

    def heads(text: str) -> list[str]:
        return [line for line in text.splitlines() if line.startswith("## cube ")]

    assert heads((REFERENCE / "cli.md").read_text(encoding="utf-8")) == heads(cli_page()), "say `make docs`"
