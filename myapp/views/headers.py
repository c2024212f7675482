"""Headers of every reply: what browsers may do with it."""

from __future__ import annotations

import secrets

from flask import Flask, Response, g, request

from myapp.views.http import declared_on

_OURS = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_API = "default-src 'none'; frame-ancestors 'none'"
_FAB = (
    "default-src 'self'; script-src 'self' 'nonce-{nonce}'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "font-src 'self' data:; form-action 'self'; base-uri 'self'; object-src 'none'; frame-ancestors 'none'"
)


def install(app: Flask) -> None:
    app.after_request(secure)
    app.jinja_env.globals["csp_nonce"] = _nonce


def _nonce() -> str:
    """Flask-AppBuilder's templates put it on their inline scripts."""
    if "csp_nonce" not in g:
        g.csp_nonce = secrets.token_urlsafe(16)
    return str(g.csp_nonce)


def secure(response: Response) -> Response:
    headers = response.headers
    headers.setdefault("X-Content-Type-Options", "nosniff")
    headers.setdefault("X-Frame-Options", "DENY")
    headers.setdefault("Referrer-Policy", "same-origin")
    headers.setdefault("Cross-Origin-Opener-Policy", "same-origin")
    headers.setdefault("Cross-Origin-Resource-Policy", "same-origin")
    if "Content-Security-Policy" not in headers:
        if response.mimetype != "text/html":
            headers["Content-Security-Policy"] = _API
        elif "csp_nonce" in g and not _is_ours():
            headers["Content-Security-Policy"] = _FAB.format(nonce=g.csp_nonce)
        else:
            headers["Content-Security-Policy"] = _OURS
    if request.is_secure:
        headers.setdefault("Strict-Transport-Security", "max-age=31536000")
    if "Cache-Control" not in headers and not (request.endpoint or "").endswith("static"):
        headers["Cache-Control"] = "no-store" if response.mimetype == "text/html" else "private, no-cache"
    return response


def _is_ours() -> bool:
    from flask import current_app

    return declared_on(current_app.view_functions.get(request.endpoint or "")) is not None
