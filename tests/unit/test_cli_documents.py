"""Files with several documents are split, and the server's line numbers are counted in the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from myapp.client import documents
from myapp.client.errors import ClientError

THREE = """\
# a comment
apiVersion: cube-studio.io/v1alpha1
kind: Pipeline
metadata: {name: a}
---
# another
kind: AIJob
metadata:
  name: b
  text: "---"
---
---
kind: JobTemplate
metadata: {name: c}
"""


def test_each_document_keeps_its_text_and_its_line() -> None:
    found = documents.split("file", THREE)
    assert [(d.line, d.kind, d.name, d.path) for d in found] == [
        (2, "Pipeline", "a", "/pipeline/"),
        (5, "AIJob", "b", "/job/"),
        (12, "JobTemplate", "c", "/job_template/"),
    ]
    assert 'text: "---"' in found[1].text
    assert found[1].in_file({"line": 3, "message": "x"}) == {"line": 7, "message": "x"}
    assert found[1].in_file({"message": "x"}) == {"message": "x"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no document"),
        ("# only a comment\n", "holds no document"),
        ("---\n---\n", "holds no document"),
        ("a: [1,\nb: 2\n", "is not YAML: line 3, column 1"),
        ("a: b: c\n", "is not YAML: line 1, column 5"),
        ("[" * 100 + "]" * 100, "nested deeper than 64 levels"),
    ],
)
def test_what_is_no_document_is_refused(text: str, said: str) -> None:
    with pytest.raises(ClientError, match=said.replace("(", r"\(")):
        documents.split("file", text)


def test_a_bomb_is_not_expanded() -> None:
    bomb = "kind: Pipeline\na0: &a0 [x]\n" + "".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 40)
    )
    assert documents.split("file", bomb)[0].kind == "Pipeline"


@pytest.mark.parametrize(
    ("text", "said"), [("kind: Pipelin\n", "kind 'Pipelin' is not known"), ("- a\n", "has no `kind`")]
)
def test_an_unknown_kind_names_file_and_line(text: str, said: str) -> None:
    with pytest.raises(ClientError, match=said) as caught:
        _ = documents.split("file.yaml", text)[0].path
    assert "file.yaml, line 1" in caught.value.message
    assert "Pipeline, JobTemplate, AIJob" in str(caught.value.resolution)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    binary, large = tmp_path / "binary", tmp_path / "large"
    binary.write_bytes(b"kind: \xff\xfe")
    with large.open("wb") as file:
        file.truncate(6 * 1024 * 1024)
    for path, said in (
        (tmp_path / "none", "cannot be read"),
        (tmp_path, "cannot be read"),
        (binary, "not UTF-8"),
        (large, "larger than"),
    ):
        with pytest.raises(ClientError, match=said):
            documents.read([str(path)])


@pytest.mark.parametrize(
    ("text", "line", "caret", "hint"),
    [
        ("a:\n\tb: 1\n", "    →b: 1", 4, "Indent with spaces"),
        ("a: 1\n b: 2\n", "     b: 2", 6, "Is it indented like the line above? or put quotes"),
        ("a:\n  - x\n  b: 1\n", "      b: 1", 6, "begin it with '- '"),
        ("a: {{ params.x }} y\n", "    a: {{ params.x }} y", 22, "quotes around the whole value"),
        ("a: @x\n", "    a: @x", 7, "put quotes around"),
        ("a: 1\nb\nc: 2\n", "    b", 4, "add what is missing"),
        ("a: *x\n", "    a: *x", 7, "write the value out"),
        ("é" * 200 + ": b: c", f"    …{'é' * 67}: b: c", 75, "quotes"),
    ],
)
def test_a_mistake_is_shown_with_a_caret_and_a_hint(text: str, line: str, caret: int, hint: str) -> None:
    with pytest.raises(ClientError) as caught:
        documents.split("file", text)
    _, shown, pointer = caught.value.message.split("\n")
    assert (shown, pointer) == (line, " " * caret + "^")
    assert len(shown) <= 120
    assert hint.lower() in str(caught.value.resolution).lower()


def test_a_mistake_in_a_later_document_is_counted_in_the_file() -> None:
    with pytest.raises(ClientError, match="line 3, column 4"):
        documents.split("file", "a: 1\n---\nb: *x\n")
