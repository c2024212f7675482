"""The sample pipeline and the templates it uses, run for real: own environment, own folders, real data.

What the platform does is done here by hand, from the same documents: the domain renders each task to its command and
files, the script gets its folders, and what it leaves is handed on to the next.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

import pytest
from uv import find_uv_bin

from myapp.catalog import Catalog, load_catalog
from myapp.catalog.yamldoc import load_one
from myapp.domain.frameworks.render import argv
from myapp.domain.graph import GraphTask, PipelineGraph, validate_pipeline
from myapp.domain.params import resolve_params
from myapp.domain.pipeline import parse_pipeline
from myapp.domain.taskspec import render_task
from myapp.domain.templating import Context, make_context

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "myapp" / "example" / "pipeline"


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    return load_catalog(ROOT / "job-template")


@pytest.fixture(scope="session")
def python(catalog: Catalog) -> Path:
    """The interpreter of an environment with the sample's requirements, built once and kept between test runs."""
    requirements = sorted(sample_requirements(catalog))
    key = hashlib.sha256("\n".join([sys.version, *requirements]).encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or tempfile.gettempdir()) / "cube-studio-tests"
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / key
    with open(cache / f"{key}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            uv = find_uv_bin()
            subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(folder)], check=True)
            interpreter = str(folder / "bin" / "python")
            subprocess.run([uv, "pip", "install", "--quiet", "--python", interpreter, *requirements], check=True)
            (folder / "complete").touch()
    return folder / "bin" / "python"


def sample_requirements(catalog: Catalog) -> list[str]:
    return list(catalog.frameworks["sklearn"].versions[0].hardware["cpu"].requirements)


class Task:
    """One task run as the platform would run it: `outputs` holds its values, and its artifacts as paths."""

    def __init__(self, process: subprocess.CompletedProcess[str], out: Path) -> None:
        self.code, self.log = process.returncode, process.stdout
        self.out = out
        self.artifacts = {p.name: p for p in sorted((out / "artifacts").glob("*"))}
        self.values = {p.name: json.loads(p.read_text()) for p in (out / "values").glob("*")}
        lines = (out / "metrics.jsonl").read_text().splitlines() if (out / "metrics.jsonl").exists() else []
        self.metrics = [json.loads(line) for line in lines]

    @property
    def outputs(self) -> dict[str, Any]:
        return {**{name: str(path) for name, path in self.artifacts.items()}, **self.values}


class Runner:
    def __init__(self, catalog: Catalog, python: Path, root: Path) -> None:
        self.catalog, self.python, self.root = catalog, python, root
        self.workspace = root / "workspace"
        self.workspace.mkdir(parents=True, exist_ok=True)

    def run(self, template: str, args: dict[str, Any], key: str = "task") -> Task:
        return self.run_task(GraphTask(key=key, template=template, args=args), make_context())

    def run_task(self, task: GraphTask, context: Context) -> Task:
        rendered, problems = render_task(task, self.catalog.templates[str(task.template)].document.spec, context)
        assert rendered is not None, problems
        command, files = argv(self.catalog.frameworks[rendered.spec.framework], rendered.spec)
        base = Path(tempfile.mkdtemp(dir=self.root, prefix=f"{task.key}-"))
        job, out = base / "job", base / "out"
        job.mkdir()
        for name, text in files.items():
            (job / name).write_text(text)
        env = {
            "PATH": f"{self.python.parent}{os.pathsep}{os.defpath}", "HOME": str(base),
            "TMPDIR": str(base), "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1",
            "CUBE_JOB_DIR": str(job), "CUBE_OUTPUT_DIR": str(out), "CUBE_WORKSPACE": str(self.workspace),
            "CUBE_RUN_ID": "7", "CUBE_TASK": task.key, "CUBE_RANK": "0", "CUBE_WORLD_SIZE": "1",
        }
        process = subprocess.run(
            [shutil.which(command[0], path=env["PATH"]) or command[0],
             *(word.replace("$(CUBE_JOB_DIR)", str(job)) for word in command[1:])],
            cwd=self.workspace, env=env, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=300,
        )
        return Task(process, out)


@pytest.fixture
def runner(catalog: Catalog, python: Path, tmp_path: Path) -> Runner:
    return Runner(catalog, python, tmp_path)


@pytest.fixture(scope="module")
def digits(catalog: Catalog, python: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Runner, dict[str, Task]]:
    """The whole sample, task by task in the order of its graph, with fewer trees than the default."""
    pipeline, problems = parse_pipeline(load_one((EXAMPLES / "digits" / "pipeline.yaml").read_text()))
    assert pipeline is not None, problems
    views = {name: template.view() for name, template in catalog.templates.items()}
    assert validate_pipeline(pipeline, templates=views, frameworks=catalog.frameworks) == []
    params, problems = resolve_params(pipeline.spec.params, {"n_estimators": 120})
    assert problems == []
    runner = Runner(catalog, python, tmp_path_factory.mktemp("digits"))
    done: dict[str, Task] = {}
    for task in PipelineGraph.of(pipeline, views).tasks:
        context = make_context(params=params, tasks={k: {"outputs": t.outputs} for k, t in done.items()})
        done[task.key] = runner.run_task(task, context)
        assert done[task.key].code == 0, done[task.key].log
    return runner, done


def read_png(path: Path) -> tuple[int, int]:
    """Width and height of a PNG whose every chunk is whole."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, kinds = 8, []
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        kinds.append(data[at + 4 : at + 8])
        body = data[at + 4 : at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length : at + 12 + length])[0] == zlib.crc32(body)
        at += 12 + length
    assert (kinds[0], kinds[-1]) == (b"IHDR", b"IEND")
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def test_the_winner_is_above_95_percent(digits: tuple[Runner, dict[str, Task]]) -> None:
    _, done = digits
    publish = done["publish"]
    assert publish.values["accuracy"] > 0.95
    assert publish.values["best"] in {"logistic-regression", "random-forest", "xgboost"}
    assert {m["name"]: m["value"] for m in publish.metrics}["accuracy"] == publish.values["accuracy"]
    validation = {k: done[f"train-{k}"].values["validation_accuracy"] for k in ("logistic", "forest", "xgboost")}
    assert publish.values["metrics"]["validation_accuracy"] == max(validation.values())


def test_the_parts_do_not_overlap(digits: tuple[Runner, dict[str, Task]], python: Path) -> None:
    _, done = digits
    split = done["split"]
    assert split.values == {"train_rows": 1221, "validation_rows": 216, "test_rows": 360}
    loaded = done["load"].values
    assert (loaded["rows"], loaded["features"], loaded["classes"]) == (1797, 64, 10)
    script = (
        "import sys, numpy as np\n"
        "parts = [{r.tobytes() for r in np.load(p, allow_pickle=False)['X']} for p in sys.argv[1:]]\n"
        "print(len(set.union(*parts)), sum(map(len, parts)))\n"
    )
    paths = [str(split.artifacts[p]) for p in ("train", "validation", "test")]
    out = subprocess.run([str(python), "-c", script, *paths], capture_output=True, text=True, check=True).stdout
    assert out.split() == ["1797", "1797"]


def test_every_declared_output_is_there(digits: tuple[Runner, dict[str, Task]], catalog: Catalog) -> None:
    pipeline = load_one((EXAMPLES / "digits" / "pipeline.yaml").read_text())
    kinds = {"int": int, "float": (float, int), "str": str, "json": (dict, list)}
    for task in pipeline["spec"]["tasks"]:
        left = digits[1][task["name"]]
        for output in catalog.templates[task["template"]].document.spec.outputs:
            if output.type == "artifact":
                assert output.name in left.artifacts, (task["name"], output.name)
            else:
                assert isinstance(left.values[output.name], kinds[output.type]), (task["name"], output.name)


@pytest.mark.parametrize("task", ["evaluate-logistic", "evaluate-forest", "evaluate-xgboost"])
def test_confusion_matrix(digits: tuple[Runner, dict[str, Task]], task: str) -> None:
    evaluated = digits[1][task]
    report = json.loads((evaluated.artifacts["report"] / "report.json").read_text())
    matrix = report["confusion_matrix"]
    right = sum(matrix[i][i] for i in range(10))
    assert sum(map(sum, matrix)) == report["rows"] == evaluated.values["rows"] == 360
    assert evaluated.values["accuracy"] == pytest.approx(right / 360)
    assert [c["class"] for c in report["classes"]] == [str(n) for n in range(10)]
    assert all(sum(matrix[i]) == report["classes"][i]["rows"] for i in range(10))
    width, height = read_png(evaluated.artifacts["confusion_matrix.png"])
    assert width > 600
    assert height > 600
    assert evaluated.artifacts["confusion_matrix.png"].read_bytes() == \
        (evaluated.artifacts["report"] / "confusion_matrix.png").read_bytes()


def test_the_best_is_published_whole(digits: tuple[Runner, dict[str, Task]]) -> None:
    runner, done = digits
    publish = done["publish"]
    folder = runner.workspace / publish.values["published"]
    assert folder == runner.workspace / "models" / "digits" / "7-publish"
    about = json.loads((folder / "model.json").read_text())
    assert about["name"] == publish.values["best"]
    assert (folder / about["file"]).stat().st_size > 1000
    assert json.loads((folder / "metrics.json").read_text())["metrics"]["accuracy"] == publish.values["accuracy"]
    assert set(json.loads((folder / "metrics.json").read_text())["compared"]) == \
        {"logistic-regression", "random-forest", "xgboost"}
    assert json.loads((folder.parent / "latest.json").read_text())["version"] == "7-publish"
    assert sorted(p.name for p in folder.parent.iterdir()) == ["7-publish", "latest.json"]
    read_png(folder / "report" / "confusion_matrix.png")


def test_publishing_again_replaces_the_same_version(digits: tuple[Runner, dict[str, Task]]) -> None:
    runner, done = digits
    args = {
        "name": "again", "models": [done["train-forest"].outputs["model"]],
        "reports": [done["evaluate-forest"].outputs["report"]], "metric": "macro_f1",
    }
    for _ in range(2):
        task = runner.run("model-select", args, "twice")
        assert task.code == 0, task.log
    assert sorted(p.name for p in (runner.workspace / "models" / "again").iterdir()) == ["7-twice", "latest.json"]


def test_nothing_is_published_below_the_limit(digits: tuple[Runner, dict[str, Task]]) -> None:
    runner, done = digits
    task = runner.run("model-select", {
        "name": "strict", "min_accuracy": 0.9999, "models": [done["train-logistic"].outputs["model"]],
        "reports": [done["evaluate-logistic"].outputs["report"]],
    })
    assert task.code == 2
    assert "below min_accuracy 0.9999: not published" in task.log
    assert not (runner.workspace / "models" / "strict").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"reports": []}, "1 models, 0 reports"),
        ({"metric": "beauty"}, "has no metric 'beauty'; it has: accuracy"),
        ({"name": "a..b"}, "name 'a..b'"),
        ({"models": ["nowhere"]}, "argument 'models'[0]: nothing at"),
    ],
)
def test_choosing_names_what_is_wrong(
    digits: tuple[Runner, dict[str, Task]], change: dict[str, Any], said: str
) -> None:
    runner, done = digits
    args = {
        "name": "n", "models": [done["train-forest"].outputs["model"]],
        "reports": [done["evaluate-forest"].outputs["report"]],
    }
    task = runner.run("model-select", {**args, **change})
    assert task.code != 0
    assert said in task.log


def test_boosting_reports_every_round(digits: tuple[Runner, dict[str, Task]]) -> None:
    losses = [m for m in digits[1]["train-xgboost"].metrics if m["name"] == "validation_mlogloss"]
    assert [m["step"] for m in losses] == list(range(120))
    assert losses[-1]["value"] < losses[0]["value"] / 5


def test_early_stopping_keeps_the_best_round(digits: tuple[Runner, dict[str, Task]]) -> None:
    runner, done = digits
    split = done["split"].outputs
    task = runner.run("xgb", {
        "train": split["train"], "validation": split["validation"], "n_estimators": 500, "learning_rate": 0.9,
        "early_stopping_rounds": 5, "name": "quick",
    })
    assert task.code == 0, task.log
    losses = [m["value"] for m in task.metrics if m["name"] == "validation_mlogloss"]
    assert task.values["rounds"] == losses.index(min(losses)) + 1 < 500
    assert json.loads((task.artifacts["model"] / "model.json").read_text())["name"] == "quick"


@pytest.mark.parametrize("name", ["iris", "wine", "breast_cancer"])
def test_other_data_sets(runner: Runner, name: str) -> None:
    loaded = runner.run("dataset-load", {"dataset": name})
    assert loaded.code == 0, loaded.log
    split = runner.run("dataset-split", {"dataset": loaded.outputs["dataset"], "seed": 3, "stratified": name != "iris"})
    assert split.code == 0, split.log
    trained = runner.run("sklearn-train", {
        "train": split.outputs["train"], "validation": split.outputs["validation"], "name": f"{name}-model",
    })
    assert trained.code == 0, trained.log
    judged = runner.run("model-evaluate", {"model": trained.outputs["model"], "data": split.outputs["test"]})
    assert judged.code == 0, judged.log
    assert judged.values["accuracy"] > 0.85
    read_png(judged.artifacts["confusion_matrix.png"])


@pytest.mark.parametrize("kind", ["extra-trees", "gradient-boosting", "svm", "knn", "naive-bayes", "mlp"])
def test_other_estimators(digits: tuple[Runner, dict[str, Task]], kind: str) -> None:
    runner, done = digits
    split = done["split"].outputs
    # The validation part is small: enough to learn from, and quick.
    task = runner.run("sklearn-train", {"train": split["validation"], "validation": split["test"], "estimator": kind})
    assert task.code == 0, task.log
    assert task.values["validation_accuracy"] > 0.6


@pytest.mark.parametrize(
    ("template", "args", "said"),
    [
        ("dataset-load", {"dataset": "iris", "min_rows": 1000}, "150 rows, fewer than the 1000 asked for"),
        ("dataset-split", {"dataset": "gone.npz"}, "argument 'dataset': nothing at"),
        ("dataset-split", {"dataset": "DATA", "test_share": 0.6, "validation_share": 0.5}, "leave too little to train"),
        ("sklearn-train", {"train": "DATA", "validation": "DATA", "estimator": "random-forest",
                           "params": {"n_estimator": 3}}, "no parameter 'n_estimator'; did you mean 'n_estimators'?"),
        ("sklearn-train", {"train": "DATA", "validation": "DATA", "estimator": "svm", "params": {"C": -1}},
         "svm cannot be trained with"),
        ("xgb", {"train": "DATA", "validation": "DATA", "params": {"tree_method": "oak"}}, "xgboost refused:"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(
    digits: tuple[Runner, dict[str, Task]], template: str, args: dict[str, Any], said: str
) -> None:
    runner, done = digits
    data = done["split"].outputs["test"]
    task = runner.run(template, {k: data if v == "DATA" else v for k, v in args.items()})
    assert task.code != 0
    assert said in task.log


def test_a_model_is_not_judged_on_other_data(digits: tuple[Runner, dict[str, Task]]) -> None:
    runner, done = digits
    iris = runner.run("dataset-load", {"dataset": "iris"})
    model = done["train-forest"].outputs["model"]
    task = runner.run("model-evaluate", {"model": model, "data": iris.outputs["dataset"]})
    assert task.code == 2
    assert "model random-forest was trained on 64 features" in task.log
