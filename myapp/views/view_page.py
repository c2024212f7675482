"""The pages: sign in, the runs, one run. They show what the API answers; nothing else is behind them."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from flask import current_app, redirect, request, session
from flask_appbuilder import expose
from flask_appbuilder.security.views import AuthDBView
from flask_appbuilder.views import IndexView
from pydantic import Field
from werkzeug.wrappers import Response

from myapp.domain.errors import Limited, NotFound, Unauthenticated, Unavailable
from myapp.domain.permissions import Permission
from myapp.security.manager import open_session
from myapp.services.read_runs import read_run
from myapp.views.access import CsrfRefused, check_csrf, who_if_any
from myapp.views.blueprints import site
from myapp.views.http import Call, Route, declare, route
from myapp.views.page import page
from myapp.views.query import Query
from myapp.views.view_security import sign_in
from myapp.views.words import COOKIE, LANGUAGES, language, words

_SIGN_IN = Route(Permission.PUBLIC, ("GET", "POST"), page=True, form=True, hidden=True)
_SIGN_OUT = Route(Permission.SELF, ("POST",), page=True, hidden=True)
_YEAR_S = 365 * 24 * 3600
_HOME = Route(Permission.SELF, page=True, hidden=True)


class HomeView(IndexView):
    """The list of runs."""

    @expose("/")
    def index(self) -> Response:
        return page("cube/runs.html")

    declare(index, _HOME)


class SignInView(AuthDBView):
    """Our form on FAB's place: rate limited together with the API, and a new session for whoever comes in."""

    @expose("/login/", methods=["GET", "POST"])
    def login(self) -> Response:
        target = safe_target(request.args.get("next"))
        if request.method == "GET":
            if who_if_any() is not None:
                return redirect(target)
            return page("cube/login.html", next=target)
        w = words(language())
        username, password = request.form.get("username", ""), request.form.get("password", "")
        try:
            check_csrf()
            found = sign_in(username, password)
        except CsrfRefused:
            return page("cube/login.html", 400, next=target, problem=w["form_expired"], username=username[:320])
        except Unauthenticated:
            return page("cube/login.html", 401, next=target, problem=w["bad_credentials"], username=username[:320])
        except (Limited, Unavailable) as error:
            seconds = int(error.retry_after or 5)
            response = page(
                "cube/login.html",
                error.status,
                next=target,
                problem=w["too_many"].format(seconds=seconds),
                username=username[:320],
            )
            response.headers["Retry-After"] = str(seconds)
            return response
        open_session(found.user_id, found.stamp)
        return redirect(target)

    @expose("/logout/", methods=["POST"])
    def logout(self) -> Response:
        session.clear()
        return redirect("/login/")

    declare(login, _SIGN_IN)
    declare(logout, _SIGN_OUT)


@route(site, "/run/<id:run_id>", permission=Permission.RUN_READ, page=True, hidden=True)
def run_page(call: Call, run_id: int) -> Any:
    """One run"""
    read_run(call.context, call.actor, run_id)
    return page("cube/run.html", run_id=run_id)


class LanguageQuery(Query):
    next: str = Field("", description="Path and query of the page to go back to.")


@route(site, "/language/<word:lang>", permission=Permission.PUBLIC, query=LanguageQuery, page=True, hidden=True)
def choose_language(call: Call, lang: str) -> Any:
    """Show the pages in another language from now on."""
    if lang not in LANGUAGES:
        raise NotFound("this language is not spoken here")
    response = redirect(_back_to(call.query.next))
    response.set_cookie(
        COOKIE,
        lang,
        max_age=_YEAR_S,
        httponly=True,
        samesite="Lax",
        secure=bool(current_app.config["SESSION_COOKIE_SECURE"]),
    )
    return response


def _back_to(wanted: str) -> str:
    """`safe_target`, but the sign-in page is a place to go back to."""
    path, _, query = wanted.partition("?")
    if path == "/login/":
        return login_address(safe_target(parse_qs(query).get("next", ["/"])[0]))
    return safe_target(wanted)


@route(site, "/favicon.ico", permission=Permission.PUBLIC, hidden=True)
def favicon(call: Call) -> Any:
    """The icon, for documents that name none: an artifact in a tab of its own (sandboxed, so of another origin)."""
    response = current_app.send_static_file("cube/icon.svg")
    response.headers["Cross-Origin-Resource-Policy"] = "cross-origin"
    return response


def login_address(target: str) -> str:
    return "/login/" + (f"?next={quote(target)}" if target != "/" else "")


def safe_target(wanted: str | None) -> str:
    """A path on this site; `/` for anything that leads elsewhere."""
    if not wanted or not wanted.startswith("/") or wanted.startswith(("//", "/\\")) or not wanted.isprintable():
        return "/"
    parts = urlsplit(wanted)
    if parts.scheme or parts.netloc or "\\" in wanted or parts.path.startswith(("/api/", "/login", "/logout")):
        return "/"
    return wanted
