"""Chooses the best of several evaluated models and publishes it, with its figures, in the project's workspace.

`models` and `reports` are the artifacts of training and of evaluation, in the same order. A published version is a
folder of its own, `models/<name>/<run>-<task>/`, put in place by one rename; `models/<name>/latest.json` points to it.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import cube_runtime as cube

PUBLISHED_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?\Z")


def candidates() -> list[dict[str, Any]]:
    """One entry per model: its folder, its description and its report."""
    models, reports = cube.argument("models"), cube.argument("reports")
    if len(models) != len(reports) or not models:
        cube.fail(f"give as many reports as models, at least one: {len(models)} models, {len(reports)} reports")
    found = []
    for at, (model, report) in enumerate(zip(models, reports, strict=True)):
        folder = cube.existing_path(model, f"argument 'models'[{at}]")
        reported = cube.existing_path(report, f"argument 'reports'[{at}]")
        about = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        judged = json.loads((reported / "report.json").read_text(encoding="utf-8"))
        if judged["model"] != about["name"]:
            cube.fail(f"reports[{at}] is of {judged['model']!r}, models[{at}] is {about['name']!r}: order them alike")
        found.append({"folder": folder, "report": reported, "about": about, "metrics": judged["metrics"]})
    return found


def publish(name: str, best: dict[str, Any], summary: dict[str, Any]) -> Path:
    """Puts the model, its report and `metrics.json` into the workspace; returns the version's folder."""
    shelf = cube.workspace() / "models" / name
    shelf.mkdir(parents=True, exist_ok=True)
    version = f"{cube.run_id()}-{cube.task_name()}"
    target = shelf / version
    with tempfile.TemporaryDirectory(dir=shelf, prefix=".partial-") as partial:
        staged = Path(partial) / version
        shutil.copytree(best["folder"], staged)
        shutil.copytree(best["report"], staged / "report")
        (staged / "metrics.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
        if target.exists():  # an earlier attempt of this task published it and then died
            target.rename(Path(partial) / "replaced")
        staged.rename(target)
        pointer = Path(partial) / "latest.json"
        pointer.write_text(json.dumps({"version": version, **summary}, indent=2) + "\n", encoding="utf-8")
        pointer.replace(shelf / "latest.json")
    return target


def main() -> None:
    metric, largest = cube.argument("metric"), cube.argument("goal") == "max"
    name = cube.argument("name")
    if not PUBLISHED_NAME.match(name) or ".." in name:
        cube.fail(f"name {name!r}: use a-z, 0-9, '.', '_' and '-', starting and ending with a letter or digit")
    found = candidates()
    for entry in found:
        if metric not in entry["metrics"]:
            known = ", ".join(sorted(entry["metrics"]))
            cube.fail(f"model {entry['about']['name']} has no metric {metric!r}; it has: {known}")

    # Equal figures: the earlier in the list wins, so that the same inputs always give the same choice.
    ranked = sorted(found, key=lambda e: e["metrics"][metric], reverse=largest)
    best = ranked[0]
    print(f"{'model':<24}{metric:>22}{'accuracy':>12}")
    for entry in ranked:
        print(f"{entry['about']['name']:<24}{entry['metrics'][metric]:>22.4f}{entry['metrics']['accuracy']:>12.4f}")

    limit = cube.argument("min_accuracy", None)
    if limit is not None and best["metrics"]["accuracy"] < limit:
        cube.fail(
            f"the best model, {best['about']['name']}, has an accuracy of {best['metrics']['accuracy']:.4f}, below "
            f"min_accuracy {limit}: not published"
        )
    summary = {
        "model": best["about"]["name"],
        "chosen_by": metric,
        "metrics": best["metrics"],
        "params": best["about"]["params"],
        "compared": {e["about"]["name"]: e["metrics"] for e in found},
        "run": cube.run_id(),
    }
    target = publish(name, best, summary)
    cube.save_artifact("model", target)
    cube.save_artifact("comparison.json", json.dumps(summary, indent=2) + "\n")
    cube.output("best", best["about"]["name"])
    cube.output("accuracy", best["metrics"]["accuracy"])
    cube.output("metrics", best["metrics"])
    cube.output("published", str(target.relative_to(cube.workspace())))
    for key, value in best["metrics"].items():
        cube.metric(key, value)
    print(f"best by {metric}: {best['about']['name']}, accuracy {best['metrics']['accuracy']:.4f}; "
          f"published as models/{name}/{target.name}")


if __name__ == "__main__":
    main()
