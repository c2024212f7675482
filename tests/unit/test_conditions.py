"""Conditions and trigger rules."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myapp.domain.conditions import Condition, check_conditions
from myapp.domain.errors import CubeError, Invalid
from myapp.domain.runs.phases import TaskPhase
from myapp.domain.runs.trigger import Trigger, judge
from myapp.domain.templating import pipeline_vocabulary

CONTEXT: dict[str, Any] = {
    "params": {
        "n": 10,
        "rate": 0.5,
        "mode": "full",
        "flag": True,
        "names": ["a", "b"],
        "digits": "10",
        "none": None,
        "big": 2**62,
    },
    "tasks": {"eval": {"phase": "succeeded", "outputs": {"accuracy": 0.96}}},
}
VOCABULARY = pipeline_vocabulary(frozenset(CONTEXT["params"]))


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("{{ tasks.eval.outputs.accuracy }} >= 0.95", True),
        ("{{ tasks.eval.outputs.accuracy }} < 0.95", False),
        ("{{ tasks.eval.phase }} == succeeded", True),
        ("{{ params.n }} > 9", True),
        ("{{ params.n }} > '9'", True),
        ("{{ params.digits }} > 9", True),
        ("{{ params.digits }} == 10", True),
        ("{{ params.digits }} == 10.0", True),
        ("{{ params.mode }} == 'full'", True),
        ('{{ params.mode }} != "full"', False),
        ("{{ params.mode }} > abc", True),
        ("{{ params.flag }} == true", True),
        ("{{ params.flag }} == 1", False),
        ("{{ params.none }} == null", True),
        ("{{ params.mode }} == null", False),
        ("{{ params.none }} != null", False),
        ("{{ params.mode }} in [full, part]", True),
        ("{{ params.mode }} not in [full, part]", False),
        ("{{ params.n }} in [1, 10.0]", True),
        ("{{ params.n }} in []", False),
        ("a in {{ params.names }}", True),
        ("'c' not  in {{ params.names }}", True),
        ("ul in {{ params.mode }}", True),
        ("{{ params.n }}<=10", True),
        ("-1 < {{ params.n }}", True),
        ("{{ params.big }} == 4611686018427387904", True),
        ("{{ params.big }} == 4611686018427387905", False),
        ("{{ params.mode }} in ['full', {{ params.mode }}]", True),
    ],
)
def test_evaluate(text: str, holds: bool) -> None:
    condition = Condition.parse(text)
    assert condition.evaluate(CONTEXT) is holds
    assert check_conditions([text], VOCABULARY, field="when")[1] == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "{{ params.n }}",
        "{{ params.n }} =",
        "{{ params.n }} === 1",
        "{{ params.n }} = 1",
        "1 == 1 == 1",
        "not 1 == 1",
        "{{ params.n }} == 1 and 2 == 2",
        "__import__('os') == 1",
        "{{ params.__class__ }} == 1",
        "{{ 1 }} == 1",
        "{{ params.n == 1",
        "{{ params.n }} == [1]",
        "{{ params.n }} in [1",
        "{{ params.n }} in [1 2]",
        "{{ params.n }} in [1,]",
        "== 1",
        "1 ==",
        "{{ params.n }} == f(1) ]",
        "{{ params.n }} == 'a",
        "{{ params.n }} ~ 1",
        "x" * 2000,
        "{{ params.n }} == lambda: 1 < 2",
    ],
)
def test_anything_but_one_comparison_is_refused(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        Condition.parse(text, field="spec.tasks[0].when[0]")
    problem = caught.value.problems[0]
    assert (problem.code, problem.field) == ("bad_condition", "spec.tasks[0].when[0]")
    assert problem.resolution
    assert problem.message.isprintable()


def test_check_reports_all_with_their_places() -> None:
    texts = ["nonsense", "{{ params.m }} == 1", "1 == 1", "{{ params.n }} == 1"]
    parsed, problems = check_conditions(texts, VOCABULARY, field="when", node="t")
    assert len(parsed) == 3
    assert [(p.code, p.field, p.node) for p in problems] == [
        ("bad_condition", "when[0]", "t"),
        ("unknown_reference", "when[1]", "t"),
        ("bad_condition", "when[2]", "t"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "{{ params.names }} < 3",
        "{{ params.flag }} > 1",
        "{{ params.none }} < 1",
        "1 in {{ params.n }}",
        "{{ tasks.gone.outputs.x }} == 1",
    ],
)
def test_what_cannot_be_compared_is_an_error_not_a_guess(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        Condition.parse(text).evaluate(CONTEXT, field="when[0]")
    assert caught.value.problems[0].field == "when[0]"


def test_references_of_both_sides() -> None:
    condition = Condition.parse("{{ params.n }} in [{{ params.mode }}, 1]", field="w")
    assert [str(ref) for ref in condition.references()] == ["params.n", "params.mode"]


@given(
    st.text(max_size=40)
    | st.lists(
        st.sampled_from(
            ["{{ params.n }}", " ", "==", "in", "not in", "[", "]", ",", "1", "a", "'x'", "<", "!=", "{{", "}}"]
        ),
        max_size=8,
    ).map(" ".join)
)
def test_any_text_is_a_condition_or_a_cube_error(text: str) -> None:
    with suppress(CubeError):
        assert Condition.parse(text).evaluate(CONTEXT) in (True, False)


VALUES: Any = st.one_of(
    st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=5), st.booleans()
)


@given(VALUES, VALUES)
def test_operators_agree_with_each_other(a: Any, b: Any) -> None:
    context = {"params": {"a": a, "b": b}}

    def holds(op: str) -> bool:
        return Condition.parse("{{ params.a }} " + op + " {{ params.b }}").evaluate(context)

    assert holds("==") is not holds("!=")
    try:
        less, more = holds("<"), holds(">")
    except Invalid:
        return
    assert not (less and more)
    assert holds("<=") is not more
    assert holds(">=") is not less


S, F, K, X = TaskPhase.SUCCEEDED, TaskPhase.FAILED, TaskPhase.SKIPPED, TaskPhase.STOPPED
ALL = [
    Trigger.ALL_SUCCEEDED,
    Trigger.ALL_DONE,
    Trigger.ANY_FAILED,
    Trigger.ANY_SUCCEEDED,
    Trigger.ALL_FAILED,
    Trigger.NONE_FAILED,
]


@pytest.mark.parametrize(
    ("upstream", "runs"),
    [
        #          succeeded, done, any_failed, any_succeeded, all_failed, none_failed
        ([S], [True, True, False, True, False, True]),
        ([S, S], [True, True, False, True, False, True]),
        ([F], [False, True, True, False, True, False]),
        ([F, F], [False, True, True, False, True, False]),
        ([S, F], [False, True, True, True, False, False]),
        ([K], [False, True, False, False, False, True]),
        ([S, K], [False, True, False, True, False, True]),
        ([F, K], [False, True, True, False, False, False]),
        ([X], [False, True, False, False, False, False]),
        ([S, X], [False, True, False, True, False, False]),
        ([], [True] * 6),
    ],
)
def test_trigger_table(upstream: list[TaskPhase], runs: list[bool]) -> None:
    assert [judge(trigger, upstream) == "run" for trigger in ALL] == runs
    assert [judge(str(trigger), upstream) == "run" for trigger in ALL] == runs


def test_unknown_trigger() -> None:
    with pytest.raises(ValueError, match="sometimes"):
        judge("sometimes", [S])


@pytest.mark.parametrize(
    ("text", "compared"),
    [
        ("{{ tasks.eval.outputs.accuracy }} >= 0.99", "0.96 >= 0.99"),
        ("{{ params.mode }} == part", "'full' == 'part'"),
        ("{{ params.none }} != null", "null != null"),
        ("{{ params.flag }} == false", "true == false"),
        ("{{ params.n }} in [1, 2]", "10 in [1,2]"),
        ("0.8888888888888888 >= {{ params.n }}", "0.888889 >= 10"),
        ("{{ params.rate }} == 0.50000001", "0.5 == 0.50000001"),
    ],
)
def test_a_condition_is_told_with_what_was_compared(text: str, compared: str) -> None:
    assert Condition.parse(text).with_values(CONTEXT) == f"{text} ({compared})"


def test_long_and_strange_values_are_cut() -> None:
    told = Condition.parse("{{ params.x }} == a").with_values({"params": {"x": "\x1b[31m" + "y" * 500}})
    assert told.isprintable()
    assert len(told) < 120
