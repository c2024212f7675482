"""The first start runs the sample on real data; the distributed examples run too."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.e2e.platform import Platform

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
EXAMPLES = Path(__file__).resolve().parents[2] / "myapp" / "example" / "pipeline"


def test_the_sample_runs_on_the_first_start_only(tmp_path: Path) -> None:
    platform = Platform(tmp_path / "var", CUBE_SAMPLE="true")
    with platform:
        run = platform.ended(1)
        assert (run["name"], run["phase"]) == ("digits", "succeeded"), run["reason"]
        assert all(task["phase"] == "succeeded" for task in run["tasks"])
        accuracies = [value["accuracy"] for value in run["outputs"].values() if "accuracy" in value]
        assert len(accuracies) >= 3
        assert max(accuracies) > 0.95
        shown = platform.cube("describe", "run", "1").stdout
        assert re.search(r"accuracy: +0\.9[5-9]", shown)
        assert re.search(r"confusion\S*: .*\.(png|svg)", shown)
    with platform:
        assert [row["id"] for row in platform.json("get", "runs")["result"]] == [1]


@pytest.mark.parametrize("name", ["rendezvous", "ps-worker"])
def test_a_distributed_example_succeeds(tmp_path: Path, name: str) -> None:
    with Platform(tmp_path / "var") as platform:
        applied = platform.json("apply", "-f", str(EXAMPLES / name / "job.yaml"))
        run = platform.ended(applied[0]["id"])
        assert run["phase"] == "succeeded", json.dumps(run["tasks"])
