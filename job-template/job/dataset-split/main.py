"""Splits a data set: rows to train on, rows to choose models by (validation), rows for the final figure (test)."""

from __future__ import annotations

from pathlib import Path

import cube_runtime as cube
import numpy as np
from sklearn.model_selection import train_test_split


def save(name: str, source: dict[str, np.ndarray], rows: np.ndarray) -> int:
    """Writes the rows (their numbers, sorted) as artifact `name`; returns how many."""
    rows = np.sort(rows)
    with cube.artifact(name).open("wb") as stream:
        np.savez_compressed(stream, **{**source, "X": source["X"][rows], "y": source["y"][rows]})
    cube.output(f"{name}_rows", len(rows))
    return len(rows)


def load(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as archive:
        return {key: archive[key] for key in archive.files}


def main() -> None:
    data = load(cube.input_artifact("dataset"))
    labels = data["y"]
    test_share, validation_share = float(cube.argument("test_share")), float(cube.argument("validation_share"))
    if test_share + validation_share >= 0.95:
        cube.fail(f"test_share {test_share} and validation_share {validation_share} leave too little to train on")
    seed = int(cube.argument("seed"))
    stratified = bool(cube.argument("stratified"))

    def part(rows: np.ndarray, share: float) -> tuple[np.ndarray, np.ndarray]:
        try:
            kept, taken = train_test_split(
                rows, test_size=share, random_state=seed, stratify=labels[rows] if stratified else None
            )
        except ValueError as error:
            cube.fail(f"cannot take a share of {share:.3g} from {len(rows)} rows: {error}")
        return kept, taken

    rest, test = part(np.arange(len(labels)), test_share)
    train, validation = part(rest, validation_share / (1 - test_share))
    counts = {name: save(name, data, rows) for name, rows in
              (("train", train), ("validation", validation), ("test", test))}
    print(f"{len(labels)} rows: " + ", ".join(f"{name} {count}" for name, count in counts.items()))


if __name__ == "__main__":
    main()
