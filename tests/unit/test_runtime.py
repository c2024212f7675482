"""The runtime library as a job uses it: files in, files out, in a process of its own."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUNTIME = ROOT / "job-template" / "runtime" / "cube_runtime" / "__init__.py"


class Job:
    """A job's folders and the means to run a script in them."""

    def __init__(self, root: Path, **env: str) -> None:
        self.job, self.out, self.workspace = root / "job", root / "out", root / "workspace"
        for folder in (self.job, self.workspace):
            folder.mkdir(parents=True)
        (self.job / "cube_runtime.py").write_text(RUNTIME.read_text())
        self.env = {
            "PATH": os.defpath, "CUBE_JOB_DIR": str(self.job), "CUBE_OUTPUT_DIR": str(self.out),
            "CUBE_WORKSPACE": str(self.workspace), **env,
        }

    def start(self, script: str) -> subprocess.Popen[str]:
        (self.job / "main.py").write_text("import cube_runtime as cube\n" + script)
        return subprocess.Popen(
            [sys.executable, str(self.job / "main.py")], cwd=self.workspace, env=self.env, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )

    def run(self, script: str) -> tuple[int, str, str]:
        process = self.start(script)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def value(self, name: str) -> object:
        return json.loads((self.out / "values" / name).read_text())


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_outputs_are_json_files_and_the_last_write_wins(job: Job) -> None:
    code, _, err = job.run(
        "cube.output('accuracy', 0.5); cube.output('accuracy', 0.97)\n"
        "cube.output('text', 'é\\n{{ params.x }}'); cube.output('nested', {'a': [1, None, True]})\n"
    )
    assert code == 0, err
    assert job.value("accuracy") == 0.97
    assert job.value("text") == "é\n{{ params.x }}"
    assert job.value("nested") == {"a": [1, None, True]}
    assert sorted(p.name for p in job.out.rglob("*") if p.is_file()) == ["accuracy", "nested", "text"]


def test_numpy_like_values_are_converted(job: Job) -> None:
    code, _, err = job.run(
        "class Scalar:\n    def tolist(self): return 3\n"
        "cube.output('n', {'x': [Scalar()]}); cube.metric('m', Scalar())\n"
    )
    assert code == 0, err
    assert job.value("n") == {"x": [3]}


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("cube.output('../x', 1)", "output name '../x'"),
        ("cube.output('a.b', 1)", "output name 'a.b'"),
        ("cube.output('x\\n', 1)", "output name"),
        ("cube.output('x', float('nan'))", "output 'x' cannot be written as JSON"),
        ("cube.output('x', object())", "output 'x' cannot be written as JSON"),
        ("cube.artifact('../../etc')", "artifact name '../../etc'"),
        ("cube.artifact('.hidden')", "artifact name '.hidden'"),
        ("cube.artifact('a/b')", "artifact name 'a/b'"),
        ("cube.metric('', 1)", "metric name ''"),
        ("cube.argument('missing')", "no argument 'missing' (it has: none)"),
    ],
)
def test_misuse_names_the_culprit_and_writes_nothing(job: Job, script: str, said: str) -> None:
    code, _, err = job.run(script)
    assert code == 1
    assert said in err
    assert [p for p in job.out.rglob("*") if p.is_file()] == []


def test_arguments(job: Job) -> None:
    (job.job / "args.json").write_text(json.dumps({"n": 3, "empty": None, "zero": 0}))
    code, out, err = job.run(
        "print(cube.arguments()); print(cube.argument('n'), cube.argument('zero', 7), cube.argument('empty', 'd'))\n"
        "cube.argument('typo')\n"
    )
    assert out.splitlines() == ["{'n': 3, 'empty': None, 'zero': 0}", "3 0 d"]
    assert (code, "(it has: empty, n, zero)" in err) == (1, True)


def test_arguments_must_be_an_object(job: Job) -> None:
    (job.job / "args.json").write_text("[1]")
    code, _, err = job.run("cube.arguments()")
    assert (code, "args.json must hold one JSON object, not list" in err) == (1, True)


def test_metrics_are_lines_and_not_finite_ones_are_left_out(job: Job) -> None:
    code, _, err = job.run(
        "cube.metric('loss', 0.5, step=1); cube.metric('loss', float('nan'), step=2); cube.metric('final', 3)\n"
    )
    assert code == 0
    assert "metric loss is nan at step 2: not recorded" in err
    rows = [json.loads(line) for line in (job.out / "metrics.jsonl").read_text().splitlines()]
    assert [(r["name"], r["value"], r.get("step")) for r in rows] == [("loss", 0.5, 1), ("final", 3.0, None)]
    assert all(r["at"] > 1e9 for r in rows)


def test_several_processes_share_the_metrics_file(job: Job) -> None:
    script = "for i in range(500): cube.metric('x' * 40, i, step=i)\n"
    for process in [job.start(script) for _ in range(3)]:
        process.communicate(timeout=60)
        assert process.returncode == 0
    rows = [json.loads(line) for line in (job.out / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) == 1500
    assert sum(r["step"] for r in rows) == 3 * sum(range(500))


def test_artifacts_files_and_folders(job: Job) -> None:
    code, _, err = job.run(
        "import pathlib\n"
        "cube.artifact('plain.txt').write_text('a')\n"
        "cube.save_artifact('blob', b'\\x00\\x01'); cube.save_artifact('words', 'é')\n"
        "folder = pathlib.Path('made'); folder.mkdir(); (folder / 'f').write_text('1')\n"
        "cube.save_artifact('tree', folder); (folder / 'f').write_text('2'); cube.save_artifact('tree', folder)\n"
        "cube.save_artifact('copy', folder / 'f')\n"
    )
    assert code == 0, err
    kept = {str(p.relative_to(job.out)): p.read_bytes() for p in job.out.rglob("*") if p.is_file()}
    assert kept == {
        "artifacts/plain.txt": b"a", "artifacts/blob": b"\x00\x01", "artifacts/words": "é".encode(),
        "artifacts/tree/f": b"2", "artifacts/copy": b"2",
    }
    assert sorted(p.name for p in job.out.iterdir()) == ["artifacts"]


def test_input_artifacts_must_exist(job: Job) -> None:
    (job.workspace / "data.csv").write_text("x")
    (job.job / "args.json").write_text(json.dumps({"here": "data.csv", "gone": "/nowhere/at/all"}))
    code, out, err = job.run("print(cube.input_artifact('here'))\ncube.input_artifact('gone')\n")
    assert out.strip() == str(job.workspace / "data.csv")
    assert (code, "argument 'gone': nothing at /nowhere/at/all" in err) == (1, True)


def test_place_in_the_gang(tmp_path: Path) -> None:
    script = "print(cube.rank(), cube.world_size(), cube.role(), cube.role_index(), cube.is_chief(), cube.run_id())\n"
    job = Job(tmp_path / "a", CUBE_RANK="2", CUBE_WORLD_SIZE="3", CUBE_ROLE="ps", CUBE_INDEX="0", CUBE_RUN_ID="41")
    assert job.run(script)[1].split() == ["2", "3", "ps", "0", "False", "41"]
    assert Job(tmp_path / "b").run(script)[1].split() == ["0", "1", "worker", "0", "True", "local"]


def test_stopping_lets_the_job_leave_by_itself(job: Job) -> None:
    process = job.start(
        "import time\ncube.stopping()\nprint('ready', flush=True)\n"
        "while not cube.stopping(): time.sleep(0.01)\ncube.output('saved', True)\n"
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert (process.returncode, job.value("saved")) == (0, True)


def test_fail_says_a_sentence_and_no_traceback(job: Job) -> None:
    code, _, err = job.run("cube.fail('the data is empty')\n")
    assert (code, err) == (2, "error: the data is empty\n")


def test_a_failed_write_leaves_no_partial_file(job: Job) -> None:
    code, _, err = job.run(
        "import os\n(cube.output_dir() / 'values' / 'taken').mkdir(parents=True)\n"
        "try:\n    cube.output('taken', 1)\nexcept OSError:\n    print('refused')\n"
    )
    assert code == 0, err
    assert [p.name for p in job.out.iterdir()] == ["values"]


def test_it_imports_only_the_standard_library() -> None:
    tree = ast.parse(RUNTIME.read_text())
    modules = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [a.name for a in node.names] if isinstance(node, ast.Import)
            else [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        )
    }
    assert modules <= set(sys.stdlib_module_names)
