"""Typed parameters: declarations, values, patterns."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myapp.domain.params import ArgSpec, ParamSpec, ValueSpec, check_specs, check_value, resolve_params
from myapp.domain.patterns import BadPattern, compile_pattern, matches


def spec(**fields: Any) -> ParamSpec:
    return ParamSpec.model_validate({"name": "x", **fields})


def arg(**fields: Any) -> ArgSpec:
    return ArgSpec.model_validate({"name": "x", **fields})


def codes(problems: list[Any]) -> list[str]:
    return [p.code for p in problems]


@pytest.mark.parametrize(
    ("declared", "value", "result"),
    [
        (spec(type="int"), 3, 3),
        (spec(type="float"), 3, 3.0),
        (spec(type="float"), 0.5, 0.5),
        (spec(), "a", "a"),
        (spec(type="text"), "a\nb", "a\nb"),
        (spec(type="bool"), False, False),
        (spec(type="list"), [1, "a"], [1, "a"]),
        (spec(type="json"), {"a": [None]}, {"a": [None]}),
        (spec(type="choice", choices=["a", 2]), 2, 2),
        (spec(type="int", min=0, max=3), 3, 3),
        (spec(pattern="[a-z]{2}"), "ab", "ab"),
        (arg(type="dict"), {"a": 1}, {"a": 1}),
        (arg(type="file"), "data/x.csv", "data/x.csv"),
        (spec(type="str", choices=["a", "b"]), "b", "b"),
        (spec(type="list", min=1), [0], [0]),
        (spec(max=3), "abc", "abc"),
    ],
)
def test_good_values(declared: ValueSpec, value: Any, result: Any) -> None:
    got, problems = check_value(declared, value, "params.x")
    assert problems == []
    assert got == result
    assert type(got) is type(result)


@pytest.mark.parametrize(
    ("declared", "value", "code"),
    [
        (spec(type="int"), "3", "wrong_type"),
        (spec(type="int"), True, "wrong_type"),
        (spec(type="int"), 3.0, "wrong_type"),
        (spec(type="int"), 2**63, "out_of_range"),
        (spec(type="float"), "0.5", "wrong_type"),
        (spec(type="float"), float("nan"), "wrong_type"),
        (spec(type="float"), 10**400, "out_of_range"),
        (spec(), 3, "wrong_type"),
        (spec(), "a\0b", "bad_character"),
        (spec(), "a" * 70_000, "too_large"),
        (spec(type="bool"), 1, "wrong_type"),
        (spec(type="bool"), "true", "wrong_type"),
        (spec(type="list"), "a", "wrong_type"),
        (spec(type="json"), {"a": float("inf")}, "wrong_type"),
        (spec(type="json"), {1: 2}, "wrong_type"),
        (spec(type="json"), [2**70], "out_of_range"),
        (spec(type="list"), ["\0"], "bad_character"),
        (spec(type="choice", choices=["a", 1]), True, "not_allowed"),
        (spec(type="choice", choices=["a"]), "A", "not_allowed"),
        (spec(type="int", min=0), -1, "out_of_range"),
        (spec(type="int", max=3), 4, "out_of_range"),
        (spec(type="list", max=1), [1, 2], "out_of_range"),
        (spec(min=2), "a", "out_of_range"),
        (spec(pattern="[a-z]+"), "a1", "no_match"),
        (spec(pattern="[a-z]+"), "a\n", "no_match"),
        (spec(pattern="[a-z]+"), "a" * 200, "bad_length"),
        (arg(type="dict"), [1], "wrong_type"),
        (arg(type="file"), "../x", "bad_path"),
        (arg(type="file"), "/etc/passwd", "bad_path"),
        (arg(type="file"), "", "bad_path"),
        (arg(type="file"), "a\\b", "bad_path"),
        (arg(type="file"), "a\x1b[0m", "bad_path"),
    ],
)
def test_bad_values_name_the_field(declared: ValueSpec, value: Any, code: str) -> None:
    _, problems = check_value(declared, value, "params.x")
    assert codes(problems) == [code]
    assert problems[0].field == "params.x"
    assert problems[0].message.isprintable()


def test_deep_json_is_refused_without_recursion() -> None:
    value: Any = 1
    for _ in range(100_000):
        value = [value]
    assert codes(check_value(spec(type="json"), value, "f")[1]) == ["too_deep"]


@pytest.mark.parametrize(
    ("declared", "text", "result"),
    [
        (spec(type="int"), "3", 3),
        (spec(type="float"), "0.5", 0.5),
        (spec(type="bool"), "true", True),
        (spec(), "3", "3"),
        (spec(type="list"), "a, b", ["a", "b"]),
        (spec(type="list"), "[1, 2]", [1, 2]),
        (spec(type="json"), '{"a": 1}', {"a": 1}),
        (spec(type="choice", choices=[1, "a"]), "1", 1),
        (arg(type="dict"), '{"a": null}', {"a": None}),
    ],
)
def test_the_command_line_is_read_leniently(declared: ValueSpec, text: str, result: Any) -> None:
    assert check_value(declared, text, "f", lenient=True) == (result, [])
    if declared.kind not in ("str", "json"):
        assert check_value(declared, text, "f")[1]


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        (spec(type="int"), "3.5"),
        (spec(type="int"), "9" * 5000),
        (spec(type="float"), "x"),
        (spec(type="bool"), "maybe"),
        (arg(type="dict"), "{"),
        (arg(type="dict"), "[" * 100_000),
        (spec(type="list"), "[" * 100_000),
        (spec(type="choice", choices=[1]), "2"),
    ],
)
def test_the_command_line_still_refuses_nonsense(declared: ValueSpec, text: str) -> None:
    assert check_value(declared, text, "f", lenient=True)[1]


def test_resolve_reports_everything_at_once() -> None:
    specs = [
        spec(name="seed", type="int", default=1),
        spec(name="data", required=True),
        spec(name="rate", type="float"),
    ]
    values, problems = resolve_params(specs, {"sed": 3, "rate": "fast"})
    assert values["seed"] == 1
    assert {(p.code, p.field) for p in problems} == {
        ("unknown_param", "params.sed"),
        ("missing_param", "params.data"),
        ("wrong_type", "params.rate"),
    }
    assert next(p for p in problems if p.code == "unknown_param").resolution == "did you mean 'seed'?"


def test_resolve_leaves_an_optional_one_null_and_templates_alone() -> None:
    specs = [spec(name="a"), spec(name="n", type="int")]
    assert resolve_params(specs, {}) == ({"a": None, "n": None}, [])
    assert resolve_params(specs, {"n": "{{ params.k }}"}, templates=True) == ({"a": None, "n": "{{ params.k }}"}, [])
    assert codes(resolve_params(specs, {"n": "{{ params.k }}"})[1]) == ["wrong_type"]


@pytest.mark.parametrize(
    ("specs", "fields"),
    [
        ([spec(name="2x")], ["p[0].name"]),
        ([spec(), spec()], ["p[1].name"]),
        ([spec(type="choice")], ["p[0].choices"]),
        ([spec(type="int", default="a")], ["p[0].default"]),
        ([spec(type="int", min=3, max=1)], ["p[0].min"]),
        ([spec(type="int", default=9, max=3)], ["p[0].default"]),
        ([spec(type="bool", choices=[True])], ["p[0].choices"]),
        ([spec(type="int", pattern="a")], ["p[0].pattern"]),
        ([spec(pattern="(a+)+")], ["p[0].pattern"]),
        ([spec(type="choice", choices=[None, []])], ["p[0].choices[0]", "p[0].choices[1]"]),
        ([spec(type="int", choices=[1, "a"])], ["p[0].choices[1]"]),
        ([spec(type="choice", choices=["a"], default="b")], ["p[0].default"]),
        ([spec(type="choice", choices=["a"], min=1)], ["p[0].min"]),
        ([spec(name=f"p{i}") for i in range(201)], ["p"]),
    ],
)
def test_declarations_are_checked(specs: list[ParamSpec], fields: list[str]) -> None:
    assert [p.field for p in check_specs(specs, "p")] == fields


def test_good_declarations_pass() -> None:
    specs = [
        spec(name="a", type="int", default=3, min=0, max=9),
        spec(name="b", type="choice", choices=["x"], default="x"),
    ]
    assert check_specs(specs, "p") == []


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+",
        "(a|b)*",
        "(a?)*",
        "((a+))+",
        r"(a)\1",
        "(?=a)",
        "(?i)a",
        "a++",
        "a*?",
        "[a",
        "(a",
        "a)",
        "a{1,5000}",
        "a{",
        "a*a*a*a*a*",
        "",
        "x" * 201,
        "\\",
        r"\A",
        "(?P<n>a)",
        "a|b|c|d|e|f",
        "*a",
        "(a{2,3}){2}",
        "a{9999}",
    ],
)
def test_patterns_that_could_take_for_ever_or_mean_nothing_are_refused(pattern: str) -> None:
    with pytest.raises(BadPattern):
        compile_pattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        ("[a-z0-9][a-z0-9._-]{0,62}", "a.b", "A"),
        (r"\d{4}-\d\d", "2024-01", "2024-1"),
        ("(?:ab){2}", "abab", "ab"),
        ("cpu|gpu", "gpu", "tpu"),
        (r"a\.b", "a.b", "axb"),
        ("[^]a]", "b", "]"),
        ("v?[0-9]+", "v1", "vv1"),
        ("[+*]", "*", "a"),
    ],
)
def test_ordinary_patterns_work(pattern: str, good: str, bad: str) -> None:
    assert matches(pattern, good)
    assert not matches(pattern, bad)


@given(st.text("ab()|*+?{}[]\\,12^$.", min_size=1, max_size=30))
def test_an_accepted_pattern_means_what_re_means_and_ends_on_any_input(pattern: str) -> None:
    try:
        compile_pattern(pattern)
    except BadPattern:
        return
    for text in ("a" * 128, "ab" * 64, "a" * 127 + "!"):  # an exponential one would not end at all
        assert matches(pattern, text) is (re.fullmatch(pattern, text) is not None)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)),
    max_leaves=12,
)
KINDS = ["str", "text", "int", "float", "bool", "choice", "list", "dict", "json", "file"]


@given(st.sampled_from(KINDS), JSON, st.booleans())
def test_a_value_that_passes_passes_again_unchanged(kind: str, value: Any, lenient: bool) -> None:
    declared = arg(type=kind, **({"choices": ["a", 1, True]} if kind == "choice" else {}))
    result, problems = check_value(declared, value, "f", lenient=lenient)
    if not problems:
        assert check_value(declared, result, "f") == (result, [])


@given(st.dictionaries(st.sampled_from(["seed", "rate", "mode", "other", "Seed"]), JSON))
def test_resolve_never_raises_and_answers_every_declared_name(given_values: dict[str, Any]) -> None:
    specs = [
        spec(name="seed", type="int", default=1),
        spec(name="rate", type="float", min=0),
        spec(name="mode", type="choice", choices=["a", "b"], required=True),
    ]
    values, problems = resolve_params(specs, given_values, lenient=True)
    assert set(values) == {"seed", "rate", "mode"}
    unknown = set(given_values) - set(values)
    assert {p.field for p in problems if p.code == "unknown_param"} == {f"params.{name}" for name in unknown}
