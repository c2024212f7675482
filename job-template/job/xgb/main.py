"""Trains gradient-boosted trees with XGBoost, reporting each round, and saves the model in XGBoost's own format.

The artifact `model` is a folder: `model.ubj` (with early stopping, up to the best round) and `model.json` (what it is
and how it was trained).
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import cube_runtime as cube
import numpy as np
import xgboost as xgb


class Reporter(xgb.callback.TrainingCallback):
    """Records train and validation loss and error of each round; ends the training when the job is to stop."""

    def __init__(self, every: int) -> None:
        super().__init__()
        self.every = max(1, every)

    def after_iteration(self, model: Any, epoch: int, evals_log: dict[str, dict[str, list[float]]]) -> bool:
        for part, series in evals_log.items():
            for name, values in series.items():
                cube.metric(f"{part}_{name}", values[-1], step=epoch)
        if epoch % self.every == 0:
            shown = "  ".join(f"{p} {n} {v[-1]:.4f}" for p, s in evals_log.items() for n, v in s.items())
            print(f"round {epoch:4d}  {shown}", flush=True)
        return cube.stopping()


def load(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as archive:
        return {key: archive[key] for key in archive.files}


def main() -> None:
    cube.stopping()
    train, validation = load(cube.input_artifact("train")), load(cube.input_artifact("validation"))
    classes = [str(c) for c in train["class_names"]]
    params: dict[str, Any] = {
        "objective": "multi:softprob",
        "num_class": len(classes),
        "eval_metric": ["merror", "mlogloss"],
        "max_depth": cube.argument("max_depth"),
        "learning_rate": cube.argument("learning_rate"),
        "subsample": cube.argument("subsample"),
        "colsample_bytree": cube.argument("colsample_bytree"),
        "seed": cube.argument("seed"),
        "tree_method": "hist",
        "nthread": int(os.environ.get("OMP_NUM_THREADS") or 1),
        "validate_parameters": True,
        **cube.argument("params", {}),
    }
    rounds = int(cube.argument("n_estimators"))
    patience = int(cube.argument("early_stopping_rounds"))
    data = {p: xgb.DMatrix(d["X"], label=d["y"]) for p, d in (("train", train), ("validation", validation))}
    size = f"{data['train'].num_row()} rows x {data['train'].num_col()} features"
    print(f"training up to {rounds} rounds on {size}", flush=True)

    started = time.perf_counter()
    try:
        booster = xgb.train(
            params,
            data["train"],
            num_boost_round=rounds,
            evals=[(data["train"], "train"), (data["validation"], "validation")],
            early_stopping_rounds=patience or None,
            callbacks=[Reporter(max(1, rounds // 10))],
            verbose_eval=False,
        )
    except xgb.core.XGBoostError as error:
        cube.fail(f"xgboost refused: {str(error).splitlines()[-1].strip()}")
    seconds = time.perf_counter() - started
    if cube.stopping():
        cube.fail("stopped before the training was complete", code=143)
    if patience:
        booster = booster[: booster.best_iteration + 1]

    def accuracy(part: str, labels: np.ndarray) -> float:
        return float(np.mean(booster.predict(data[part]).argmax(axis=1) == labels))

    scores = {
        "train_accuracy": accuracy("train", train["y"]),
        "validation_accuracy": accuracy("validation", validation["y"]),
    }
    folder = cube.artifact("model")
    folder.mkdir()
    booster.save_model(folder / "model.ubj")
    about = {
        "name": cube.argument("name", "") or "xgboost",
        "estimator": "xgboost",
        "format": "xgboost-ubj",
        "file": "model.ubj",
        "params": {**params, "n_estimators": booster.num_boosted_rounds()},
        "metrics": scores,
        "classes": classes,
        "features": [str(f) for f in train["feature_names"]],
        "dataset": str(train["name"]),
        "train_rows": len(train["y"]),
        "libraries": {"xgboost": xgb.__version__, "numpy": np.__version__},
        "run": cube.run_id(),
        "task": cube.task_name(),
    }
    (folder / "model.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    cube.output("rounds", booster.num_boosted_rounds())
    for name, value in {**scores, "train_seconds": round(seconds, 3)}.items():
        cube.output(name, value)
        cube.metric(name, value)
    print(f"trained {booster.num_boosted_rounds()} rounds in {seconds:.2f} s: "
          + ", ".join(f"{k} {v:.4f}" for k, v in scores.items()))


if __name__ == "__main__":
    main()
