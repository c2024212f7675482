"""Loads one of the data sets shipped with scikit-learn, checks it, and hands it on as one `.npz` file.

The file holds `X` (rows x features, float64), `y` (rows, class numbers from 0), `class_names`, `feature_names`, `name`.
"""

from __future__ import annotations

import cube_runtime as cube
import numpy as np
from sklearn import datasets

LOADERS = {
    "digits": datasets.load_digits,
    "iris": datasets.load_iris,
    "wine": datasets.load_wine,
    "breast_cancer": datasets.load_breast_cancer,
}


def problems_of(features: np.ndarray, labels: np.ndarray, min_rows: int) -> list[str]:
    """Everything that makes the data unfit for training a classifier, in words."""
    if features.ndim != 2:
        return [f"features must be a table, not an array of {features.ndim} dimensions"]
    found = []
    rows = len(features)
    if rows != len(labels):
        found.append(f"{rows} rows but {len(labels)} labels")
    if rows < min_rows:
        found.append(f"{rows} rows, fewer than the {min_rows} asked for")
    missing = int(np.count_nonzero(~np.isfinite(features)))
    if missing:
        found.append(f"{missing} of {features.size} values are missing or not finite")
    classes, counts = np.unique(labels, return_counts=True)
    if len(classes) < 2:
        found.append(f"{len(classes)} class: a classifier needs two")
    rare = [f"{c} ({n})" for c, n in zip(classes, counts, strict=True) if n < 3]
    if rare:
        found.append(f"classes with fewer than 3 rows cannot be split: {', '.join(rare)}")
    return found


def main() -> None:
    name = cube.argument("dataset")
    data = LOADERS[name]()
    features = np.asarray(data.data, dtype=np.float64)
    labels = np.asarray(data.target, dtype=np.int64)
    found = problems_of(features, labels, int(cube.argument("min_rows", 0)))
    if found:
        cube.fail(f"data set {name} is not fit for use: " + "; ".join(found))

    class_names = [str(c) for c in data.target_names]
    counts = np.bincount(labels, minlength=len(class_names))
    duplicates = len(features) - len(np.unique(features, axis=0))
    constant = int(np.count_nonzero(np.ptp(features, axis=0) == 0))
    with cube.artifact("dataset").open("wb") as stream:
        np.savez_compressed(
            stream,
            X=features,
            y=labels,
            class_names=np.array(class_names),
            feature_names=np.array([str(f) for f in data.feature_names]),
            name=np.array(name),
        )
    cube.output("rows", len(features))
    cube.output("features", features.shape[1])
    cube.output("classes", len(class_names))
    cube.output("class_counts", dict(zip(class_names, counts.tolist(), strict=True)))
    for metric, value in (("rows", len(features)), ("duplicate_rows", duplicates), ("constant_features", constant)):
        cube.metric(metric, value)
    print(f"{name}: {len(features)} rows, {features.shape[1]} features, {len(class_names)} classes")
    print(f"rows per class: {', '.join(f'{c}={n}' for c, n in zip(class_names, counts, strict=True))}")
    print(f"missing values: 0, duplicate rows: {duplicates}, constant features: {constant}")


if __name__ == "__main__":
    main()
