"""Cube Studio."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flask import Flask

    from myapp.composition import Platform


def create_app(platform: Platform) -> Flask:
    """The web application of a composed platform. The schema must be up to date (`cube db upgrade`)."""
    from myapp.views.app import build

    return build(platform.settings, platform.database, platform.context)
