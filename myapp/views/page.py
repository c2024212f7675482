"""A page in our look: what every template knows."""

from __future__ import annotations

from typing import Any

from flask import Flask, g, render_template, request
from flask_wtf.csrf import generate_csrf
from werkzeug.wrappers import Response

from myapp.views.words import LANGUAGES, language, reasons, words


def install(app: Flask) -> None:
    """The bar on top is the same on Flask-AppBuilder's pages."""
    app.context_processor(_known)


def page(template: str, status: int = 200, **values: Any) -> Response:
    return Response(render_template(template, **values), status=status, mimetype="text/html")


def _known() -> dict[str, Any]:
    lang = language()
    return {
        "lang": lang,
        "other_languages": {code: name for code, name in LANGUAGES.items() if code != lang},
        "w": words(lang),
        "reasons": reasons(lang),
        "actor": g.get("cube_actor"),
        "here": request.full_path.rstrip("?"),
        "csrf": generate_csrf(),
    }
