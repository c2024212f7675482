"""Trains one of scikit-learn's classifiers and saves it with what is needed to use and to judge it.

The artifact `model` is a folder: `model.joblib` (scikit-learn's own format: loading it runs code, so load only models
that you trust) and `model.json` (what it is, how it was trained, its accuracy, the library versions).
"""

from __future__ import annotations

import difflib
import json
import os
import time
import warnings
from pathlib import Path
from typing import Any

import cube_runtime as cube
import joblib
import numpy as np
import sklearn
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

# estimator, its defaults where ours differ, whether it needs scaled features
ESTIMATORS: dict[str, tuple[Any, dict[str, Any], bool]] = {
    "logistic-regression": (LogisticRegression, {"max_iter": 2000, "C": 0.1}, True),
    "random-forest": (RandomForestClassifier, {"n_estimators": 200}, False),
    "extra-trees": (ExtraTreesClassifier, {"n_estimators": 200}, False),
    "gradient-boosting": (HistGradientBoostingClassifier, {}, False),
    "svm": (SVC, {}, True),
    "knn": (KNeighborsClassifier, {}, True),
    "naive-bayes": (GaussianNB, {}, False),
    "mlp": (MLPClassifier, {"max_iter": 400}, True),
}


def build(kind: str, params: dict[str, Any], seed: int) -> tuple[Any, dict[str, Any]]:
    """The estimator to fit (with scaling where it needs that) and the parameters that were set."""
    factory, defaults, scaled = ESTIMATORS[kind]
    estimator = factory()
    known = estimator.get_params()
    for name in params:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(known))}"
            cube.fail(f"params: {kind} has no parameter {name!r}; {hint}")
    chosen = {**defaults, **params}
    if "random_state" in known:
        chosen.setdefault("random_state", seed)
    if "n_jobs" in known and factory is not LogisticRegression:
        chosen.setdefault("n_jobs", int(os.environ.get("OMP_NUM_THREADS") or 1))
    estimator.set_params(**chosen)
    return (make_pipeline(StandardScaler(), estimator) if scaled else estimator), chosen


def load(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as archive:
        return {key: archive[key] for key in archive.files}


def main() -> None:
    train, validation = load(cube.input_artifact("train")), load(cube.input_artifact("validation"))
    kind = cube.argument("estimator")
    model, params = build(kind, cube.argument("params", {}), int(cube.argument("seed")))
    print(f"training {kind} on {train['X'].shape[0]} rows x {train['X'].shape[1]} features: {params}", flush=True)

    started = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        try:
            model.fit(train["X"], train["y"])
        except (ValueError, TypeError) as error:
            cube.fail(f"{kind} cannot be trained with {params}: {error}")
    seconds = time.perf_counter() - started
    for warning in caught:
        print(f"warning: {warning.message}", flush=True)

    scores = {
        "train_accuracy": float(model.score(train["X"], train["y"])),
        "validation_accuracy": float(model.score(validation["X"], validation["y"])),
    }
    folder = cube.artifact("model")
    folder.mkdir()
    joblib.dump(model, folder / "model.joblib", compress=3)
    about = {
        "name": cube.argument("name", "") or kind,
        "estimator": kind,
        "format": "sklearn-joblib",
        "file": "model.joblib",
        "params": params,
        "metrics": scores,
        "classes": [str(c) for c in train["class_names"]],
        "features": [str(f) for f in train["feature_names"]],
        "dataset": str(train["name"]),
        "train_rows": len(train["y"]),
        "libraries": {"scikit-learn": sklearn.__version__, "numpy": np.__version__},
        "run": cube.run_id(),
        "task": cube.task_name(),
    }
    (folder / "model.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    for name, value in {**scores, "train_seconds": round(seconds, 3)}.items():
        cube.output(name, value)
        cube.metric(name, value)
    print(f"trained in {seconds:.2f} s: " + ", ".join(f"{k} {v:.4f}" for k, v in scores.items()))


if __name__ == "__main__":
    main()
