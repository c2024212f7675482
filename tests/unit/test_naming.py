"""Names, slugs and object names."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myapp.domain.naming import (
    KEY,
    NAME,
    SLUG,
    check_env_name,
    check_identifier,
    check_key,
    check_name,
    check_slug,
    did_you_mean,
    nearest,
    object_name,
    shown,
    slugify,
)

LABEL = re.compile(r"[a-z][a-z0-9-]{0,61}[a-z0-9]")


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (check_slug, ["ab", "vision-2", "a" * 32], ["a", "", "2a", "A", "a-", "a_b", "a" * 33, "a/b", "ab\n", None, 3]),
        (
            check_name,
            ["a", "9", "a.b_c-d", "a" * 63],
            ["", "-a", "a.", "a..b", "../x", "A", "a" * 64, "a\0", "a b", ["a"]],
        ),
        (check_key, ["a", "train_model-2", "a" * 63], ["", "9a", "a.b", "a-", "_a", "a" * 64, "a\n", "ä"]),
        (check_identifier, ["x", "Seed_2", "x" * 63], ["", "_x", "__class__", "2x", "a-b", "a.b", "x" * 64]),
        (check_env_name, ["A", "_A", "PATH_2"], ["", "2A", "A-B", "A=B", "A\0", "A" * 129]),
    ],
)
def test_alphabets(check: object, good: list[object], bad: list[object]) -> None:
    assert callable(check)
    for value in good:
        assert check(value, "metadata.name") is None, value
    for value in bad:
        problem = check(value, "metadata.name", "node")
        assert problem is not None, value
        assert (problem.code, problem.field, problem.node) == ("bad_name", "metadata.name", "node")
        assert problem.resolution
        assert problem.message.isprintable()


@given(st.text(max_size=200))
def test_slugify_gives_a_slug_for_any_text_and_keeps_slugs(text: str) -> None:
    slug = slugify(text)
    assert SLUG.match(slug)
    assert slugify(text) == slug
    assert slugify(slug) == slug


@pytest.mark.parametrize(
    ("text", "slug"),
    [
        ("Vision Team", "vision-team"),
        ("  Ünïcode!! ", "unicode"),
        ("2024 plan", "p-2024-plan"),
        ("a__b", "a-b"),
    ],
)
def test_slugify_stays_readable(text: str, slug: str) -> None:
    assert slugify(text) == slug


def test_slugify_tells_other_scripts_apart() -> None:
    assert slugify("数字") != slugify("图像")


PARTS = st.tuples(st.text(max_size=100), st.text(max_size=100), st.integers(0, 2**63 - 1))


@given(PARTS)
def test_object_name_is_a_label_with_room_for_a_role(parts: tuple[str, str, int]) -> None:
    name = object_name(*parts)
    assert LABEL.fullmatch(name)
    assert len(name) <= 56
    assert object_name(*parts) == name


@given(PARTS, PARTS)
def test_object_names_differ_whenever_attempts_do(a: tuple[str, str, int], b: tuple[str, str, int]) -> None:
    if a[2] != b[2]:
        assert object_name(*a) != object_name(*b)


def test_object_names_differ_where_their_visible_parts_do_not() -> None:
    assert object_name("vision", "train-model-long-a", 1) != object_name("vision", "train-model-long-b", 1)
    assert object_name("a-b", "c", 1) != object_name("a", "b-c", 1)


def test_object_name_refuses_a_negative_id() -> None:
    with pytest.raises(ValueError, match="negative"):
        object_name("a", "b", -1)


@pytest.mark.parametrize(
    ("word", "known", "close"),
    [
        ("scrpt", ["script", "args"], "script"),
        ("Script", ["script"], "script"),
        ("zzz", ["script"], None),
        ("lod", ["load", "split"], "load"),
        ("", ["a"], None),
        ("x" * 500, ["x"], None),
    ],
)
def test_nearest(word: str, known: list[str], close: str | None) -> None:
    assert nearest(word, known) == close


def test_did_you_mean_lists_a_short_vocabulary() -> None:
    assert did_you_mean("scrpt", ["script"]) == "did you mean 'script'?"
    assert did_you_mean("zzz", ["b", "a"]) == "known: a, b"
    assert did_you_mean("zzz", [f"name{i}" for i in range(50)]) is None
    assert did_you_mean("zzz", []) is None


@given(st.one_of(st.text(), st.integers(), st.floats(), st.none(), st.booleans(), st.lists(st.integers()), st.binary()))
def test_shown_is_one_short_printable_line(value: object) -> None:
    text = shown(value)
    assert text.isprintable()
    assert len(text) <= 90


def test_shown_survives_a_number_too_long_to_print() -> None:
    assert shown(10**6000).startswith("0x")


def test_patterns_do_not_accept_a_trailing_newline() -> None:
    assert not any(pattern.match("ab\n") for pattern in (SLUG, NAME, KEY))
