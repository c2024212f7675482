"""Fixtures of the web tests, imported only when one is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.integration.web_fixtures import World


@pytest.fixture(scope="session")
def web_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a Redis of this test session."""
    from tests.integration.web_fixtures import redis_server

    yield from redis_server(tmp_path_factory.mktemp("redis"))


@pytest.fixture(scope="module")
def web(web_redis: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One application for a test module; tests that change people or limits use `own_web`."""
    from tests.integration.web_fixtures import make_world

    yield from make_world(web_redis, tmp_path_factory.mktemp("home"))


@pytest.fixture
def own_web(web_redis: str, tmp_path: Path) -> Iterator[World]:
    """An application of the test's own."""
    from tests.integration.web_fixtures import make_world

    yield from make_world(web_redis, tmp_path)
