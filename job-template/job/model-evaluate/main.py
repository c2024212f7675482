"""Judges a trained classifier on data it has not seen: accuracy, figures per class, a confusion matrix as a picture.

The artifact `report` is a folder: `report.json` and `confusion_matrix.png`; the picture is also an artifact of its own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cube_runtime as cube
import numpy as np
from PIL import Image, ImageDraw, ImageFont

INK, MUTED, PAPER = (32, 36, 44), (110, 118, 130), (255, 255, 255)
RIGHT, WRONG, EMPTY = (17, 98, 178), (206, 66, 48), (245, 247, 250)


def load(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as archive:
        return {key: archive[key] for key in archive.files}


def predict(folder: Path, about: dict[str, Any], features: np.ndarray) -> np.ndarray:
    """The class number of each row."""
    path = folder / about["file"]
    if about["format"] == "sklearn-joblib":
        import joblib

        return np.asarray(joblib.load(path).predict(features))
    if about["format"] != "xgboost-ubj":
        cube.fail(f"model {about['name']}: format {about['format']!r} is unknown; known: sklearn-joblib, xgboost-ubj")
    import xgboost as xgb

    booster = xgb.Booster(model_file=path)
    return np.asarray(booster.predict(xgb.DMatrix(features)).argmax(axis=1))


def confusion(actual: np.ndarray, predicted: np.ndarray, classes: int) -> np.ndarray:
    """classes x classes counts, rows actual, columns predicted."""
    return np.bincount(actual * classes + predicted, minlength=classes * classes).reshape(classes, classes)


def figures(matrix: np.ndarray, names: list[str]) -> tuple[dict[str, float], list[dict[str, Any]]]:
    """Overall metrics, and precision, recall, F1 and rows of each class. A class without rows counts 0."""
    hits = np.diag(matrix).astype(float)
    actual, predicted = matrix.sum(axis=1), matrix.sum(axis=0)
    recall = np.divide(hits, actual, out=np.zeros_like(hits), where=actual > 0)
    precision = np.divide(hits, predicted, out=np.zeros_like(hits), where=predicted > 0)
    total = precision + recall
    f1 = np.divide(2 * precision * recall, total, out=np.zeros_like(hits), where=total > 0)
    overall = {
        "accuracy": float(hits.sum() / matrix.sum()),
        "macro_precision": float(precision.mean()),
        "macro_recall": float(recall.mean()),
        "macro_f1": float(f1.mean()),
    }
    per_class = [
        {"class": n, "rows": int(r), "precision": float(p), "recall": float(q), "f1": float(f)}
        for n, r, p, q, f in zip(names, actual, precision, recall, f1, strict=True)
    ]
    return overall, per_class


def blend(colour: tuple[int, int, int], share: float) -> tuple[int, int, int]:
    return tuple(round(e + (c - e) * share) for c, e in zip(colour, EMPTY, strict=True))  # type: ignore[return-value]


def shorten(text: str, font: Any, width: float) -> str:
    while len(text) > 1 and font.getlength(text) > width:
        text = text[:-2].rstrip() + "…"
    return text


def draw(matrix: np.ndarray, names: list[str], title: str, subtitle: str) -> Image.Image:
    """The confusion matrix: blue where right, red where wrong, deeper for a larger share of the actual class."""
    classes = len(names)
    cell = int(np.clip(620 // classes, 14, 110))
    head, body = ImageFont.load_default(22), ImageFont.load_default(15)
    label = ImageFont.load_default(int(np.clip(cell // 3, 10, 15)))
    number = ImageFont.load_default(int(np.clip(cell // 3, 9, 20)))
    side = int(max(label.getlength(n) for n in names)) if classes else 0
    side = min(side, 150)
    upright = max(label.getlength(n) for n in names) <= cell - 6
    left, top = side + 66, 92
    grid = cell * classes
    below = 34 if upright else side + 22
    width = max(left + grid + 28, left + int(max(head.getlength(title), body.getlength(subtitle))) + 28)
    image = Image.new("RGB", (width, top + grid + below + 44), PAPER)
    pen = ImageDraw.Draw(image)
    pen.text((left, 20), title, INK, head)
    pen.text((left, 54), subtitle, MUTED, body)

    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    for row in range(classes):
        for column in range(classes):
            count, share = int(matrix[row, column]), float(shares[row, column])
            x, y = left + column * cell, top + row * cell
            # Errors are few: a square root makes a share of 2 % visible.
            strength = share if row == column else share**0.5
            pen.rectangle((x, y, x + cell - 2, y + cell - 2), blend(RIGHT if row == column else WRONG, strength))
            if count and number.getlength(str(count)) <= cell - 4:
                ink = PAPER if strength > 0.55 else INK
                pen.text((x + cell / 2 - 1, y + cell / 2 - 1), str(count), ink, number, anchor="mm")
    for at, name in enumerate(names):
        text = shorten(name, label, side)
        pen.text((left - 10, top + at * cell + cell / 2), text, INK, label, anchor="rm")
        x = left + at * cell + cell // 2
        if upright:
            pen.text((x, top + grid + 8), text, INK, label, anchor="mt")
        else:
            paste_upwards(image, text, label, INK, x, top + grid + 8, from_top=True)
    pen.text((left + grid / 2, top + grid + below + 6), "predicted class", MUTED, body, anchor="mt")
    paste_upwards(image, "actual class", body, MUTED, 24, top + grid // 2, from_top=False)
    return image


def paste_upwards(
    image: Image.Image, text: str, font: Any, ink: tuple[int, int, int], x: int, y: int, *, from_top: bool
) -> None:
    """Writes `text` turned by 90 degrees, centred on `x`; `y` is its upper end, or its middle."""
    box = font.getbbox(text)
    tile = Image.new("RGB", (int(box[2]) + 2, int(box[3]) + 4), PAPER)
    ImageDraw.Draw(tile).text((1, 1), text, ink, font)
    tile = tile.rotate(90, expand=True)
    image.paste(tile, (x - tile.width // 2, y if from_top else y - tile.height // 2))


def main() -> None:
    folder, data = cube.input_artifact("model"), load(cube.input_artifact("data"))
    about = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    names = [str(c) for c in data["class_names"]]
    if names != about["classes"] or data["X"].shape[1] != len(about["features"]):
        cube.fail(
            f"model {about['name']} was trained on {len(about['features'])} features and classes {about['classes']}; "
            f"the data has {data['X'].shape[1]} features and classes {names}"
        )
    matrix = confusion(data["y"], predict(folder, about, data["X"]), len(names))
    overall, per_class = figures(matrix, names)
    errors = int(matrix.sum() - np.trace(matrix))

    report = cube.artifact("report")
    report.mkdir()
    picture = report / "confusion_matrix.png"
    draw(
        matrix,
        names,
        f"{about['name']} on {data['name']}",
        f"accuracy {overall['accuracy']:.2%}, macro F1 {overall['macro_f1']:.3f}, {errors} of {matrix.sum()} wrong",
    ).save(picture, optimize=True)
    cube.save_artifact("confusion_matrix.png", picture)
    body = {
        "model": about["name"],
        "metrics": {**about["metrics"], **overall},
        "rows": int(matrix.sum()),
        "classes": per_class,
        "confusion_matrix": matrix.tolist(),
    }
    (report / "report.json").write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")
    cube.output("rows", int(matrix.sum()))
    for name, value in overall.items():
        cube.output(name, value)
        cube.metric(name, value)
    print(f"{about['name']}: {errors} of {matrix.sum()} wrong, accuracy {overall['accuracy']:.4f}")
    for row in per_class:
        print(f"  {row['class']:>16}  precision {row['precision']:.3f}  recall {row['recall']:.3f}  rows {row['rows']}")


if __name__ == "__main__":
    main()
