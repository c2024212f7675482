"""The catalogue: what ships is valid; what is broken is left out, named by file and line, and refused as a whole."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from myapp.catalog import Catalog, catalog_root, load_catalog
from myapp.domain.errors import Invalid
from myapp.domain.template import validate_args

ROOT = Path(__file__).resolve().parents[2] / "job-template"
TEMPLATES = {
    "dataset-load", "dataset-split", "model-evaluate", "model-select", "python", "pytorch", "shell", "sklearn-train",
    "tf", "xgb",
}
MINIMAL = """\
apiVersion: cube-studio.io/v1alpha1
kind: JobTemplate
metadata: {name: NAME}
spec:
  args:
    - {name: count, type: int, default: 1}
  framework: shell
  job:
    script: echo {{ args.count }}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A catalogue of its own with two frameworks and one good template."""
    (tmp_path / "frameworks").mkdir()
    for name in ("shell", "python", "sklearn"):
        shutil.copy(ROOT / "frameworks" / f"{name}.yaml", tmp_path / "frameworks")
    (tmp_path / "runtime" / "cube_runtime").mkdir(parents=True)
    (tmp_path / "runtime" / "cube_runtime" / "__init__.py").write_text("VERSION = 1\n")
    add(tmp_path, "good", MINIMAL.replace("NAME", "good"))
    return tmp_path


def add(root: Path, folder: str, template: str, **files: str) -> Path:
    path = root / "job" / folder
    path.mkdir(parents=True, exist_ok=True)
    (path / "template.yaml").write_text(template)
    for name, text in files.items():
        (path / name.replace("_py", ".py")).write_text(text)
    return path


def line_of(root: Path, file: str, text: str) -> int:
    return next(i for i, line in enumerate((root / file).read_text().splitlines(), 1) if text in line)


# ---- what ships ------------------------------------------------------------------------------------------------------


def test_what_ships_is_whole() -> None:
    catalog = load_catalog(catalog_root()).require()
    assert set(catalog.frameworks) == {"python", "pytorch", "shell", "sklearn", "tensorflow", "xgboost"}
    assert set(catalog.templates) == TEMPLATES
    assert all(len(template.sha256) == 64 for template in catalog.templates.values())
    for template in catalog.templates.values():
        assert template.readme.startswith(f"# {template.name}\n")
        assert template.document.metadata.title
        assert template.document.metadata.description
        assert template.document.metadata.category
        assert all(arg.description for arg in template.document.spec.args)
        assert all(output.description for output in template.document.spec.outputs)
        assert template.path == f"job/{template.name}/template.yaml"


@pytest.mark.parametrize(
    ("name", "args"),
    [("shell", {"command": "true"}), ("python", {"script": "pass"}), ("pytorch", {"script": "pass", "workers": 2}),
     ("tf", {"script": "pass"})],
)
def test_basic_templates_take_what_is_documented(name: str, args: dict[str, object]) -> None:
    spec = load_catalog(ROOT).templates[name].document.spec
    assert validate_args(spec.args, args, where="args")[1] == []
    assert [p.code for p in validate_args(spec.args, {}, where="args")[1]] == ["missing_param"]


def test_the_sample_shares_one_environment() -> None:
    frameworks = load_catalog(ROOT).frameworks
    builds = [frameworks[name].versions[0].hardware["cpu"] for name in ("sklearn", "xgboost")]
    assert builds[0].requirements == builds[1].requirements
    for line in builds[0].requirements:
        assert line.count("==") == 1, f"{line}: pin it"
    names = {line.partition("==")[0] for line in builds[0].requirements}
    assert {"numpy", "scikit-learn", "xgboost-cpu", "pillow", "joblib"} <= names
    assert not {name for name in names if name.startswith("nvidia") or name == "xgboost"}


def test_shell_and_python_build_nothing() -> None:
    frameworks = load_catalog(ROOT).frameworks
    assert frameworks["shell"].versions == frameworks["python"].versions == []
    assert frameworks["shell"].script is not None
    assert frameworks["shell"].script.command == ["/bin/sh", "{file}"]


def test_python_templates_carry_the_runtime_and_shell_does_not() -> None:
    catalog = load_catalog(ROOT)
    library = (ROOT / "runtime" / "cube_runtime" / "__init__.py").read_text()
    for template in catalog.templates.values():
        if template.document.spec.framework == "shell":
            assert template.files == {}
        else:
            assert template.files["cube_runtime.py"] == library
    assert set(catalog.templates["xgb"].files) == {"cube_runtime.py", "main.py"}
    assert catalog.runtime_files(catalog.frameworks["python"]) == {"cube_runtime.py": library}
    assert catalog.runtime_files(catalog.frameworks["shell"]) == {}
    view = catalog.templates["xgb"].view()
    assert (view.name, view.sha256, "model" in view.outputs) == ("xgb", catalog.templates["xgb"].sha256, True)


# ---- what is broken --------------------------------------------------------------------------------------------------

PYTHON = MINIMAL.replace("NAME", "bad").replace("framework: shell", "framework: python").replace(
    "script: echo {{ args.count }}", "scriptFile: main.py")
BAD = MINIMAL.replace("NAME", "bad")

# what the template says, the files beside it, then: code, field, text on the line, part of the message
CASES: dict[str, tuple[str, dict[str, str], str, str | None, str, str]] = {
    "yaml": (BAD.replace("  framework:", "   framework:"), {}, "unreadable", None, "framework:", "not valid YAML"),
    "duplicate key": (BAD + "  job: {}\n", {}, "unreadable", None, "  job: {}", "the key 'job' stands twice"),
    "tag": (BAD.replace("default: 1", "default: !!python/name:os.system"), {}, "unreadable", None, "default", "tag"),
    "unknown field": (BAD.replace("  framework", "  framwork: x\n  framework"), {}, "unknown_field", "spec.framwork",
                      "framwork", "unknown field 'framwork'"),
    "unknown framework": (BAD.replace("shell", "pyton"), {}, "unknown_framework", "spec.framework", "pyton",
                          "there is no framework 'pyton'"),
    "no framework": (BAD.replace("  framework: shell\n", ""), {}, "missing_field", "spec.framework", "  args:",
                     "required field is missing"),
    "bad default": (BAD.replace("default: 1", "default: many"), {}, "wrong_type", "spec.args[0].default", "many",
                    "expected a whole number, got 'many'"),
    "default out of range": (BAD.replace("default: 1", "default: 9, max: 5"), {}, "out_of_range",
                             "spec.args[0].default", "default: 9", "the most is 5"),
    "unknown argument": (BAD.replace("args.count", "args.cuont"), {}, "unknown_reference", "spec.job.script", "cuont",
                         "args has no 'cuont'"),
    "code in braces": (BAD.replace("args.count", "().__class__"), {}, "bad_expression", "spec.job.script", "__class__",
                       "is not a reference"),
    "wrong kind": (BAD.replace("kind: JobTemplate", "kind: Pipeline"), {}, "bad_kind", "kind", "kind:",
                   "expected JobTemplate"),
    "bad name": (MINIMAL.replace("NAME", "Bad Name"), {}, "bad_name", "metadata.name", "Bad Name", "not a valid name"),
    "bad resources": (BAD + "  resources: {cpu: lots}\n", {}, "", "spec.resources.cpu", "lots", ""),
    "bad output": (BAD + "  outputs: [{name: a b}]\n", {}, "bad_name", "spec.outputs[0].name", "a b", "'a b'"),
    "not a mapping": ("- 1\n", {}, "unreadable", None, "- 1", "a document must be a mapping"),
    "spec not a mapping": (BAD.partition("spec:")[0] + "spec: text\n", {}, "wrong_type", "spec", "spec: text",
                           "expected a mapping"),
    "script missing": (PYTHON, {}, "missing_file", "spec.job.scriptFile", "scriptFile", "'main.py' cannot be used"),
    "script elsewhere": (PYTHON.replace("main.py", "../good/template.yaml"), {}, "bad_path", "spec.job.scriptFile",
                         "scriptFile", "not a relative path"),
    "runtime overwritten": (PYTHON + "  files: {cube_runtime.py: x}\n", {"main_py": "pass\n"}, "bad_path",
                            "spec.files.cube_runtime.py", "files:", "the platform's own file"),
    "framework version": (BAD.replace("shell", "sklearn").replace("echo {{ args.count }}", "pass\n    version: '0.1'"),
                          {}, "unknown_version", "spec.job.version", "version: '0.1'", "has no version '0.1'"),
    "distribution": (BAD.replace("echo {{ args.count }}", "exit\n    distributed: {type: ddp, workers: 2}"), {},
                     "unsupported_distribution", "spec.job.distributed.type", "distributed", "does not know"),
    "reserved variable": (BAD.replace("echo {{ args.count }}", "exit\n    env: {HOME: /}"), {}, "reserved_env",
                          "spec.job.env.HOME", "HOME", "HOME is set by the platform"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_broken_template_is_refused_with_file_and_line(root: Path, case: str) -> None:
    template, files, code, field, on_line, message = CASES[case]
    add(root, "bad", template, **files)
    catalog = load_catalog(root)
    assert set(catalog.templates) == {"good"}
    found = [p for p in catalog.problems if p.file == "job/bad/template.yaml"]
    problem = next((p.problem for p in found if p.problem.field == field and code in p.problem.code), None)
    assert problem is not None, [str(p) for p in catalog.problems]
    assert message in problem.message
    assert problem.line == line_of(root, "job/bad/template.yaml", on_line)
    with pytest.raises(Invalid, match=r"the catalogue is broken: job/bad/") as caught:
        catalog.require()
    assert caught.value.code == "catalog_broken"
    assert {"file": "job/bad/template.yaml", "line": problem.line}.items() <= caught.value.detail[0].items() or \
        len(caught.value.detail) > 1


def test_every_problem_of_a_template_is_told_at_once(root: Path) -> None:
    add(root, "bad", BAD.replace("default: 1", "default: x").replace("shell", "nothing") + "  resources: {cpu: lots}\n")
    fields = {p.problem.field for p in load_catalog(root).problems}
    assert fields == {"spec.args[0].default", "spec.framework", "spec.resources.cpu"}


def test_a_problem_reads_as_one_line(root: Path) -> None:
    add(root, "bad", BAD.replace("framework: shell", "framework: shel"))
    (problem,) = load_catalog(root).problems
    assert str(problem) == (
        "job/bad/template.yaml:7: spec.framework: there is no framework 'shel' (did you mean 'shell'?)"
    )


def test_a_python_script_with_a_syntax_error_names_its_own_line(root: Path) -> None:
    add(root, "bad", PYTHON, main_py="x = 1\ny = (\n")
    problems = {p.file: p.problem for p in load_catalog(root).problems}
    assert problems["job/bad/main.py"].line == 2
    assert "is not valid Python" in problems["job/bad/main.py"].message
    assert problems["job/bad/template.yaml"].field == "spec.job.scriptFile"


def test_two_templates_of_one_name(root: Path) -> None:
    add(root, "hood", MINIMAL.replace("NAME", "good"))
    catalog = load_catalog(root)
    (problem,) = catalog.problems
    assert (problem.file, problem.problem.field, problem.problem.line) == ("job/hood/template.yaml", "metadata.name", 3)
    assert "'good' is already the name of job/good/template.yaml" in problem.problem.message
    assert catalog.templates["good"].path == "job/good/template.yaml"


def test_two_frameworks_of_one_name(root: Path) -> None:
    (root / "frameworks" / "zz.yaml").write_text("title: again\nname: shell\n")
    (problem,) = load_catalog(root).problems
    assert (problem.file, problem.problem.line) == ("frameworks/zz.yaml", 2)
    assert "'shell' is already the name of shell.yaml" in problem.problem.message


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("name: x\ntopology: star\n", 2, "'star' is not one of"),
        ("name: x\nenv:\n  A: '{{ ranc }}'\n", 3, "'ranc' is not known here"),
        ("name: x\nversions:\n  - version: '1'\n    cpuu: {}\n", 4, "unknown field 'cpuu'"),
        ("name: [\n]]", 2, "not valid YAML"),
        ("", 1, "there is no document in it"),
    ],
)
def test_a_broken_framework_is_refused_with_file_and_line(root: Path, text: str, line: int | None, said: str) -> None:
    (root / "frameworks" / "bad.yaml").write_text(text)
    catalog = load_catalog(root)
    problem = next(p for p in catalog.problems if p.file == "frameworks/bad.yaml")
    assert said in problem.problem.message
    assert problem.problem.line == line
    assert set(catalog.frameworks) == {"shell", "python", "sklearn"}


def _link_out(root: Path) -> None:
    folder = add(root, "bad", PYTHON)
    (folder / "main.py").symlink_to("/etc/hostname")


def _not_utf8(root: Path) -> None:
    (add(root, "bad", BAD) / "template.yaml").write_bytes(b"name: \xff\n")


def _too_large(root: Path) -> None:
    (add(root, "bad", PYTHON) / "main.py").write_bytes(b"#" * (1024 * 1024 + 1))


def _a_folder(root: Path) -> None:
    (add(root, "bad", PYTHON) / "main.py").mkdir()


def _no_template(root: Path) -> None:
    (root / "job" / "bad").mkdir()


def _bomb(root: Path) -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]
    add(root, "bad", "\n".join(rows) + "\n")


@pytest.mark.parametrize(
    ("spoil", "file", "said"),
    [
        (_link_out, "job/bad/main.py", "lies outside the catalogue"),
        (_not_utf8, "job/bad/template.yaml", "is not UTF-8 text"),
        (_too_large, "job/bad/main.py", "is larger than 1024 KiB"),
        (_a_folder, "job/bad/main.py", "is not a regular file"),
        (_no_template, "job/bad/template.yaml", "is missing"),
        (_bomb, "job/bad/template.yaml", "are not allowed"),
    ],
)
def test_hostile_files(root: Path, spoil: Callable[[Path], None], file: str, said: str) -> None:
    spoil(root)
    catalog = load_catalog(root)
    assert set(catalog.templates) == {"good"}
    assert said in next(p.problem.message for p in catalog.problems if p.file == file)


def test_an_empty_catalogue_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "frameworks").mkdir()
    assert {p.problem.message for p in load_catalog(tmp_path).problems} == {"holds no framework", "is missing"}


# ---- hashes and the cache --------------------------------------------------------------------------------------------


def shas(catalog: Catalog) -> dict[str, str]:
    return {name: template.sha256 for name, template in catalog.templates.items()}


def touch(path: Path, text: str) -> None:
    before = path.stat().st_mtime_ns
    path.write_text(text)
    os.utime(path, ns=(before + 1_000_000, before + 1_000_000))


def test_the_hash_follows_the_template_its_script_and_the_runtime(root: Path) -> None:
    folder = add(root, "scripted", PYTHON.replace("bad", "scripted"), main_py="print(1)\n")
    seen = [shas(load_catalog(root))]
    touch(folder / "main.py", "print(2)\n")
    seen.append(shas(load_catalog(root)))
    touch(root / "runtime" / "cube_runtime" / "__init__.py", "VERSION = 2\n")
    seen.append(shas(load_catalog(root)))
    touch(folder / "template.yaml", PYTHON.replace("bad", "scripted") + "# a remark\n")
    seen.append(shas(load_catalog(root)))
    (folder / "README.md").write_text("# scripted\n")
    seen.append(shas(load_catalog(root)))
    assert [s["scripted"] for s in seen[:4]] == list(dict.fromkeys(s["scripted"] for s in seen))
    assert seen[3] == seen[4]
    assert {s["good"] for s in seen} == {seen[0]["good"]}
    touch(folder / "main.py", "print(1)\n")
    touch(root / "runtime" / "cube_runtime" / "__init__.py", "VERSION = 1\n")
    touch(folder / "template.yaml", PYTHON.replace("bad", "scripted"))
    assert shas(load_catalog(root)) == seen[0]


def test_the_catalogue_is_read_again_only_when_something_changed(root: Path) -> None:
    first = load_catalog(root)
    assert load_catalog(root) is first
    add(root, "new", MINIMAL.replace("NAME", "new"))
    second = load_catalog(root)
    assert set(second.templates) == {"good", "new"}
    shutil.rmtree(root / "job" / "new")
    assert set(load_catalog(root).templates) == {"good"}
    touch(root / "job" / "good" / "template.yaml", "broken: [\n")
    assert load_catalog(root).templates == {}


def test_the_folder_is_found_or_the_remedy_is_named(tmp_path: Path, root: Path) -> None:
    assert catalog_root() == ROOT
    assert catalog_root(root) == root
    with pytest.raises(Invalid, match="no catalogue at") as caught:
        catalog_root(tmp_path / "nowhere")
    assert caught.value.code == "catalog_missing"
    assert caught.value.resolution
