"""YAML and JSON from strangers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from myapp.catalog.yamldoc import load_documents, load_json
from myapp.domain.errors import CubeError, Invalid, Problem, TooLarge


def load(text: str | bytes) -> Any:
    return load_documents(text)[0].value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1", 1),
        ("a: -1", -1),
        ("a: 1.5", 1.5),
        ("a: 1e3", 1000.0),
        ("a: .5", 0.5),
        ("a: 0x1F", 31),
        ("a: true", True),
        ("a: False", False),
        ("a: null", None),
        ("a: ~", None),
        ("a:", None),
        ("a: yes", "yes"),
        ("a: off", "off"),
        ("a: NO", "NO"),
        ("a: 2024-01-01", "2024-01-01"),
        ("a: 2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z"),
        ("a: 12:30", "12:30"),
        ("a: 1_000", "1_000"),
        ("a: 010", "010"),
        ("a: '1'", "1"),
        ('a: "true"', "true"),
        ("a: |\n  x\n  y\n", "x\ny\n"),
        ("a: 1.2.3", "1.2.3"),
        ("a: 3.", 3.0),
        ("a: +7", 7),
        ("a: 9223372036854775807", 2**63 - 1),
        ("a: nan", "nan"),
        ("a: {b: [1, 'x']}", {"b": [1, "x"]}),
        ("a: 0o17", "0o17"),
        ("a: 数字", "数字"),
        ('a: "\\u00e9"', "é"),
        ("a: 08", "08"),
    ],
)
def test_scalars(text: str, value: Any) -> None:
    got = load(text)["a"]
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("on: 1\noff: 2\nyes: 3", ["on", "off", "yes"]),
        ("137: OOM", ["137"]),
        ("1.5: a", ["1.5"]),
        ("null: a\ntrue: b", ["null", "true"]),
    ],
)
def test_keys_are_text_as_written(text: str, keys: list[str]) -> None:
    assert list(load(text)) == keys


BOMB = "a: &a [x, x, x, x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [*{chr(97 + i)}, *{chr(97 + i)}]\n" for i in range(20)
)


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        (BOMB, "alias", 1),
        ("a: 1\nb: *x", "alias", 2),
        ("a: 1\n\na: 2", "duplicate_key", 3),
        ("a: {b: 1, b: 2}", "duplicate_key", 1),
        ("a: !!python/object/apply:os.system [ls]", "tag", 1),
        ("a: !!str 1", "tag", 1),
        ("a: !x 1", "tag", 1),
        ("a: ! 1", "tag", 1),
        ("? [a, b]\n: 1", "bad_key", 1),
        ("? {a: b}\n: 1", "bad_key", 1),
        ("'': 1", "bad_key", 1),
        ("<<: {a: 1}", "merge_key", 1),
        ("a: b\nc: \0", "control_character", 2),
        ("a: \x1b[31m", "control_character", 1),
        ('a: "x\\0y"', "control_character", 1),
        ('a:\n  - "\\e[0m"', "control_character", 2),
        ('"\\x07": 1', "control_character", 1),
        ("a: .inf", "not_finite", 1),
        ("a:\n- .NaN", "not_finite", 2),
        ("a: 1e999", "out_of_range", 1),
        ("a: 9223372036854775808", "out_of_range", 1),
        ("a: " + "9" * 10_000, "out_of_range", 1),
        ("a: 0x" + "f" * 30, "out_of_range", 1),
        ("a: " + "[" * 60 + "]" * 60, "too_deep", 1),
        ("[" * 1_000_000, "wrong", 1),
        ("a: [1, 2", "bad_yaml", 1),
        ("a: 'x", "bad_yaml", 1),
        ("a: b: c", "bad_yaml", 1),
        ("a: 1\n b: 2", "bad_yaml", 2),
        ("\tx: 1", "bad_yaml", 1),
        ("a: @x", "bad_yaml", 1),
        ("", "empty_document", 1),
        ("# only a comment\n", "empty_document", 1),
        ("---\n---\n", "empty_document", 1),
        ("- a\n- b", "wrong_type", 1),
        ("text", "wrong_type", 1),
        ("42", "wrong_type", 1),
        ("a: 1\n---\n- x", "wrong_type", 3),
        ("%YAML 9.9\n---\na: 1", "bad_yaml", 1),
    ],
)
def test_refused_with_code_and_line(text: str, code: str, line: int) -> None:
    with pytest.raises(Invalid) as caught:
        load_documents(text)
    problem = caught.value.problems[0]
    if code != "wrong":
        assert problem.code == code
        assert problem.line is not None
        assert problem.line in (line, line + 1)  # a parser may notice at the end of the line
    else:
        assert problem.code in ("too_deep", "bad_yaml")
    assert "line" in caught.value.message
    assert problem.message.isprintable()


def test_encodings() -> None:
    assert load("\ufeffa: é".encode()) == {"a": "é"}
    for raw in (b"a: \xff", "a: 1".encode("utf-16"), b"\x80"):
        with pytest.raises(Invalid) as caught:
            load_documents(raw)
        assert caught.value.code in ("bad_encoding", "control_character")


def test_size_limits() -> None:
    with pytest.raises(TooLarge):
        load_documents("a: " + "x" * (5 * 1024 * 1024))
    with pytest.raises(TooLarge):
        load_documents(b"# " + b"x" * (10 * 1024 * 1024))
    with pytest.raises(TooLarge):
        load_documents("a: [" + "1," * 2000 + "]", max_nodes=1000)
    with pytest.raises(TooLarge):
        load_documents("a: 1\n---\n" * 1500)
    with pytest.raises(TooLarge):
        load_json("[" + "1," * 2000 + "1]", max_nodes=1000)
    with pytest.raises(TooLarge):
        load_json(b" " * (6 * 1024 * 1024))


TEXT = """\
apiVersion: v1
spec:
  tasks:
    - name: a
      args: {x: 1,
             y: 2}
    - name: b
      env:
        KEY: value
---

kind: Second
list: [1, 2]
"""


def test_several_documents_with_lines() -> None:
    first, second = load_documents(TEXT)
    assert second.value == {"kind": "Second", "list": [1, 2]}
    expected = {
        "apiVersion": 1,
        "spec": 3,
        "spec.tasks": 4,
        "spec.tasks[0]": 4,
        "spec.tasks[0].name": 4,
        "spec.tasks[0].args.y": 6,
        "spec.tasks[1].env.KEY": 9,
        "spec.tasks[1].env.GONE": 9,
        "spec.tasks[1].missing.deeper": 7,
        "spec.tasks[7]": 4,
        "": 1,
    }
    assert {path: first.line(path) for path in expected} == expected
    assert second.line("kind") == 12
    assert second.line("list[1]") == 13
    lines = first.lines
    assert lines["spec.tasks[0].args.y"] == 6
    assert all(first.line(path) == line for path, line in lines.items())


def test_problems_get_their_lines() -> None:
    first = load_documents(TEXT)[0]
    known = Problem(code="x", message="x", field="apiVersion", line=99)
    problems = [Problem(code="x", message="x", field="spec.tasks[1].env.KEY"), known, Problem(code="x", message="x")]
    assert [p.line for p in first.annotate(problems)] == [9, 99, 1]
    plain = load_json("{}").annotate(problems)
    assert plain == problems


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "empty_document"),
        (" \n", "empty_document"),
        ("[1]", "wrong_type"),
        ('{"a": 1, "a": 2}', "duplicate_key"),
        ('{"a": NaN}', "not_finite"),
        ('{"a": -Infinity}', "not_finite"),
        ('{"a": 1e999}', "out_of_range"),
        ('{"a": 9223372036854775808}', "out_of_range"),
        ('{"a": ' + "9" * 9999 + "}", "out_of_range"),
        ('{"a": "\\u0000"}', "control_character"),
        ('{"\\u0007": 1}', "control_character"),
        ('{"a": "\\ud800"}', "control_character"),
        ('{"a": ' + "[" * 60 + "]" * 60 + "}", "too_deep"),
        ("[" * 200_000, "too_deep"),
        ('{"a": ' * 200_000, "too_deep"),
        ("{", "bad_json"),
        ("{'a': 1}", "bad_json"),
        ('{"a": 1} x', "bad_json"),
        ('{"a": "\t"}', "bad_json"),
    ],
)
def test_json_is_refused_too(text: str, code: str) -> None:
    with pytest.raises(Invalid) as caught:
        load_json(text)
    assert caught.value.code == code


JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "Zs", "S")), max_size=12),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text("abcdef", min_size=1), inner, max_size=4)
    ),
    max_leaves=15,
)


@given(st.dictionaries(st.text("xyz", min_size=1), JSON, min_size=1))
def test_what_is_written_is_read_back(value: dict[str, Any]) -> None:
    text = json.dumps(value, ensure_ascii=False)
    assert load_json(text).value == value
    assert load(text) == value
    assert load(json.dumps(value, indent=2, ensure_ascii=False)) == value
    assert load_json(json.dumps(value)).value == value


@given(
    st.text(max_size=60)
    | st.lists(
        st.sampled_from(
            [
                "a",
                ":",
                " ",
                "\n",
                "-",
                "[",
                "]",
                "{",
                "}",
                ",",
                "'",
                '"',
                "&a",
                "*a",
                "!!x",
                "|",
                ">",
                "#",
                "?",
                "<<",
                "  ",
                "---",
                "%",
                "1",
            ],
        ),
        max_size=25,
    ).map("".join)
)
def test_any_text_is_a_document_or_a_cube_error(text: str) -> None:
    for load_it in (load_documents, load_json):
        error = refusal(load_it, text)
        assert error is None or (error.problems and error.status in (413, 422))


@given(st.binary(max_size=60))
def test_any_bytes_too(data: bytes) -> None:
    error = refusal(load_documents, data)
    if error is None:
        assert all(isinstance(document.value, dict) for document in load_documents(data))
    else:
        assert error.problems


def refusal(load_it: Callable[[Any], object], data: str | bytes) -> CubeError | None:
    try:
        load_it(data)
    except CubeError as error:
        return error
    return None


def test_the_pure_python_parser_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [document.value for document in load_documents(TEXT)]
    monkeypatch.setattr("myapp.catalog.yamldoc.Loader", yaml.SafeLoader)
    assert [document.value for document in load_documents(TEXT)] == expected
