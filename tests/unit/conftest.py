"""The local backend, as the tests of `local_*` use it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from myapp.backends.local import sandbox
from tests.contract.lab import Lab, local_lab


@pytest.fixture(params=["none", "bwrap"])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    if request.param == "bwrap" and (reason := sandbox.probe().reason):
        pytest.skip(reason)
    lab = local_lab(tmp_path, request.param)
    yield lab
    lab.close()


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Lab]:
    lab = local_lab(tmp_path)
    yield lab
    lab.close()
