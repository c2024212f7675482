"""`{{ path }}`: what is read, what is refused, and that nothing else can be reached."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myapp.domain.errors import CubeError, Invalid, TooLarge
from myapp.domain.templating import (
    MAX_RENDERED,
    Ref,
    check,
    make_context,
    pipeline_vocabulary,
    references,
    render,
    template_vocabulary,
)

CONTEXT = make_context(
    params={"seed": 3, "rate": 0.5, "flag": True, "items": [1, "a"], "none": None, "text": "{{ params.seed }}"},
    run={"id": 7, "name": "digits-7", "project": "public"},
    creator="ada",
    workspace="/ws",
    at=datetime(2024, 3, 1, 12, 30, 15, tzinfo=UTC),
    tasks={"train-a": {"phase": "succeeded", "outputs": {"accuracy": 0.97, "a.b.png": "/x/a.b.png", "_m": 1}}},
)
VOCABULARY = pipeline_vocabulary(frozenset(CONTEXT["params"]))


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("{{ params.seed }}", 3),
        ("{{params.rate}}", 0.5),
        ("{{ params.flag }}", True),
        ("{{ params.items }}", [1, "a"]),
        ("{{ params.none }}", None),
        ("seed={{ params.seed }}", "seed=3"),
        ("{{ params.flag }}!", "true!"),
        ("[{{ params.none }}]", "[]"),
        ("{{ params.items }} ", '[1,"a"] '),
        ("{{ tasks.train-a.outputs.accuracy }}", 0.97),
        ("{{ tasks.train-a.outputs.a.b.png }}", "/x/a.b.png"),
        ("see {{ tasks.train-a.outputs._m }}", "see 1"),
        ("{{ tasks.train-a.phase }}", "succeeded"),
        ("{{ run.id }}/{{ run.name }}", "7/digits-7"),
        ("{{ creator }}", "ada"),
        ("{{ date.today }} {{ date.yesterday }}", "2024-03-01 2024-02-29"),
        ("{{ date.now }}", "2024-03-01T12:30:15+00:00"),
        ("{{ run.scheduled_at }}", "2024-03-01T12:30:15+00:00"),
        ("{{{{ x }}", "{{ x }}"),
        ("{{{{{{{{", "{{{{"),
        ("{% if x %} }} ${{{{y}}", "{% if x %} }} ${{y}}"),
        ("plain", "plain"),
        ("", ""),
        ("{{ params.text }}", "{{ params.seed }}"),
        ("a {{ params.text }}", "a {{ params.seed }}"),
    ],
)
def test_render(text: str, result: Any) -> None:
    got = render(text, CONTEXT)
    assert got == result
    assert type(got) is type(result)
    assert check(text, VOCABULARY) == []


def test_render_goes_through_nested_values_and_leaves_the_original() -> None:
    value = {"a": ["{{ params.seed }}", {"b": "x{{ params.seed }}"}], "c": 1, "d": None}
    assert render(value, CONTEXT) == {"a": [3, {"b": "x3"}], "c": 1, "d": None}
    assert value["a"] == ["{{ params.seed }}", {"b": "x{{ params.seed }}"}]


HOSTILE = [
    "{{ params.__class__ }}",
    "{{ params.seed.__class__ }}",
    "{{ 7*7 }}",
    "{{ params.seed | upper }}",
    "{{ }}",
    "{{",
    "{{ params.seed",
    "{{ params[0] }}",
    "{{ params['seed'] }}",
    "{{ ().__class__ }}",
    "{{ config }}",
    "{{ self }}",
    "{{ request.application }}",
    "{{ params..seed }}",
    "{{ .params }}",
    "{{ params. }}",
    "{{ params.seed }}{{",
    "{{{ params.seed }}}",
    "{{ params.seed\n.x }}",
    "{{ params.seed\0 }}",
    "{{ " + "a." * 400 + "b }}",
    "{{ os.environ }}",
    "{{ params }}",
    "{{ params.nope }}",
    "{{ creator.name }}",
    "{{ tasks.train-a }}",
    "{{ tasks.train-a.outputs }}",
    "{{ tasks }}",
    "{{ run.secret }}",
    "{{ args.x }}",
    "{{ tasks.train-a.outputs. }}",
    "{{ tasks.train-a.outputs..png }}",
    "{{ tasks.train-a.phase.png }}",
    "{{ tasks.train-a.results.confusion.png }}",
    "{{ параметр }}",
    "{{ params.keys }}",
    "{{ date.today.year }}",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_anything_else_is_a_problem_that_names_the_field(text: str) -> None:
    problems = check({"args": [text]}, VOCABULARY, field="spec.tasks[0]", node="t")
    assert problems
    for problem in problems:
        assert problem.code in ("bad_expression", "unknown_reference")
        assert (problem.field, problem.node) == ("spec.tasks[0].args[0]", "t")
        assert problem.message.isprintable()


@pytest.mark.parametrize(
    "text", ["{{ params.__class__ }}", "{{ 7*7 }}", "{{ params.nope }}", "{{ params.seed.real }}", "{{"]
)
def test_render_refuses_what_check_refuses(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        render({"a": [text]}, CONTEXT, field="job")
    assert caught.value.problems[0].field == "job.a[0]"
    assert "job.a[0]" in caught.value.message


def test_unknown_names_get_the_nearest() -> None:
    assert check("{{ params.sed }}", VOCABULARY)[0].resolution == "did you mean 'seed'?"
    assert check("{{ parms.seed }}", VOCABULARY)[0].resolution == "did you mean 'params'?"


def test_a_template_sees_its_args_only() -> None:
    vocabulary = template_vocabulary(frozenset({"x"}))
    assert check(["{{ args.x }}", "{{ run.id }}", "{{ date.today }}"], vocabulary) == []
    for text in ("{{ params.seed }}", "{{ tasks.a.phase }}", "{{ args.y }}"):
        assert [p.code for p in check(text, vocabulary)] == ["unknown_reference"]


def test_references_are_found_in_order_with_their_fields() -> None:
    value = {"a": "{{ params.x }} {{ tasks.t.phase }}", "b": [{"c": "{{ creator }}"}, "{{ bad bad }}", "{{{{ no }}"]}
    found = references(value, "f")
    assert found == [Ref(("params", "x"), "f.a"), Ref(("tasks", "t", "phase"), "f.a"), Ref(("creator",), "f.b[0].c")]
    assert [ref.task for ref in found] == [None, "t", None]


def test_expressions_in_names_are_refused() -> None:
    value = {"{{ params.seed }}": 1}
    with pytest.raises(Invalid):
        render(value, CONTEXT, field="env")
    assert check({"{{ 1 }}": 1}, VOCABULARY, field="env")[0].code == "bad_expression"


def test_rendered_size_is_bounded() -> None:
    context = make_context(params={"big": "x" * (MAX_RENDERED // 2)})
    assert len(render("{{ params.big }}{{ params.big }}", context)) == MAX_RENDERED
    with pytest.raises(TooLarge) as caught:
        render(["{{ params.big }}" * 1000], context, field="args.x")
    assert caught.value.problems[0].field == "args.x[0]"


def test_depth_is_bounded() -> None:
    value: Any = "{{ params.seed }}"
    for _ in range(50_000):
        value = [value]
    assert check(value, VOCABULARY) == []
    with pytest.raises(Invalid):
        render(value, CONTEXT)


class Trap:
    """An object whose attributes must never be looked at."""

    def __getattribute__(self, name: str) -> Any:
        if name in ("__class__", "__str__", "__repr__"):
            return object.__getattribute__(self, name)
        raise AssertionError(f"looked at {name}")


@pytest.mark.parametrize("text", ["{{ params.trap.secret }}", "{{ params.trap.x-y }}"])
def test_only_mappings_are_walked(text: str) -> None:
    with pytest.raises(Invalid):
        render(text, {"params": {"trap": Trap()}})


PIECES = st.lists(
    st.one_of(
        st.text(max_size=12),
        st.sampled_from(
            [
                "{{",
                "}}",
                "{{{{",
                " ",
                ".",
                "params",
                "seed",
                "tasks",
                "|",
                "__",
                "{{ params.seed }}",
                "{{ creator }}",
                "{{ run.name }}",
            ]
        ),
    ),
    max_size=12,
).map("".join)


@given(PIECES)
def test_render_gives_a_value_or_a_cube_error(text: str) -> None:
    good = check(text, VOCABULARY) == []
    failure: CubeError | None = None
    try:
        render(text, CONTEXT, field="f")
    except CubeError as error:
        failure = error
    if failure is None:
        assert good or references(text)
    else:
        assert failure.problems[0].field == "f"
        assert not good


@given(PIECES)
def test_nothing_outside_the_vocabulary_comes_out(text: str) -> None:
    secret = "S3CRET"
    context = {**CONTEXT, "hidden": {"x": secret}, "_secret": secret}
    if check(text, VOCABULARY):
        return
    try:
        out = render(text, context)
    except CubeError:
        return
    assert secret not in str(out)


@given(st.text(max_size=200))
def test_escaping_keeps_any_text(text: str) -> None:
    escaped = text.replace("{{", "{{{{")
    assert check(escaped, VOCABULARY) == []
    assert render(escaped, {}) == text
