"""Asking the person at the terminal."""

from __future__ import annotations

import getpass
import sys


def ask(prompt: str, *, hidden: bool = False) -> str:
    """From the person at the terminal, else the next line of standard input."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    return getpass.getpass(prompt) if hidden else input(prompt)
