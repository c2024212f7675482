"""Query parameters: plain and rison, strict either way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from werkzeug.datastructures import MultiDict

from myapp.domain.errors import Invalid, Problem
from myapp.views.http import declared_on
from myapp.views.query import parse_query
from myapp.views.view_artifact import disposition, safe_type
from myapp.views.view_page import safe_target
from myapp.views.view_run import RunQuery
from myapp.views.words import words


def test_plain_and_rison_say_the_same() -> None:
    plain = parse_query(RunQuery, MultiDict({"page": "2", "page_size": "10", "phase": "running", "pipeline_id": "7"}))
    rison = parse_query(
        RunQuery,
        MultiDict(
            {"q": "(page:2,page_size:10,filters:!((col:phase,opr:eq,value:running),(col:pipeline_id,opr:eq,value:7)))"}
        ),
    )
    assert plain == rison.model_copy(update={"q": None})


def test_a_plain_parameter_wins() -> None:
    assert parse_query(RunQuery, MultiDict({"q": "(page:2)", "page": "5"})).page == 5


def refused(raw: dict[str, str]) -> list[Problem] | None:
    """What is wrong with a query; None when it is accepted."""
    try:
        parse_query(RunQuery, MultiDict(raw))
    except Invalid as error:
        return error.problems
    return None


@given(st.text(max_size=60))
def test_any_rison_is_parsed_or_refused(text: str) -> None:
    problems = refused({"q": text})
    assert problems is None or problems[0].field


@given(st.dictionaries(st.sampled_from(["page", "phase", "before", "project", "x\0", "kind"]), st.text(max_size=10)))
def test_any_query_is_parsed_or_refused(raw: dict[str, str]) -> None:
    problems = refused(raw)
    assert problems is None or problems[0].field


@pytest.mark.parametrize(
    ("media_type", "sent"),
    [
        ("image/png", ("image/png", True)),
        ("text/plain; charset=x", ("text/plain", True)),
        ("text/html", ("application/octet-stream", False)),
        ("image/svg+xml", ("application/octet-stream", False)),
        ("application/pdf", ("application/octet-stream", False)),
        ("text/javascript", ("application/octet-stream", False)),
        ("application/x-pickle", ("application/x-pickle", False)),
        ("nonsense", ("application/octet-stream", False)),
        ("a/b\r\nSet-Cookie: x", ("application/octet-stream", False)),
    ],
)
def test_types_of_artifacts(media_type: str, sent: tuple[str, bool]) -> None:
    assert safe_type(media_type) == sent


@given(st.text(max_size=40))
def test_a_file_name_cannot_break_out_of_its_header(name: str) -> None:
    name = name.encode("utf-8", "replace").decode()
    value = disposition(name, inline=False)
    assert value.isascii()
    assert value.isprintable()
    assert value.count('"') == 2


@given(st.text(max_size=40))
def test_a_target_is_a_path_of_this_site(wanted: str) -> None:
    target = safe_target(wanted)
    assert target == "/" or target == wanted
    assert target.startswith("/")
    assert not target.startswith(("//", "/\\"))


def test_both_languages_have_every_word() -> None:
    english, chinese = words("en"), words("zh")
    assert english.keys() == chinese.keys()
    assert all(english.values())
    assert all(chinese.values())


def test_an_undeclared_function_has_no_declaration() -> None:
    assert declared_on(None) is None
    assert declared_on(print) is None
