"""The catalogue of a long-running process: changed files take effect within seconds, broken ones never."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from myapp.catalog.loader import Catalog, load_catalog
from myapp.domain.frameworks.framework import Framework

log = logging.getLogger(__name__)
LOOK_AGAIN_S = 3.0


class LiveCatalog:
    """Looks at the files when it is asked, at most every `LOOK_AGAIN_S` seconds. `frameworks` and `runtime_files` are
    mappings that always show the newest good state."""

    def __init__(self, root: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._root = root
        self._clock = clock
        self._good = self._seen = load_catalog(root)
        self._looked_at = clock()
        self.frameworks: Mapping[str, Framework] = _Frameworks(self)
        self.runtime_files: Mapping[str, Mapping[str, str]] = _RuntimeFiles(self)

    def now(self) -> Catalog:
        """The catalogue without problems that was seen last; the very first one as it is."""
        if self._clock() - self._looked_at >= LOOK_AGAIN_S:
            self._looked_at = self._clock()
            self._look()
        return self._good

    def _look(self) -> None:
        try:
            found = load_catalog(self._root)
        except OSError as error:
            log.warning("the catalogue cannot be read, the last good one stays in use: %s", error)
            return
        if found is self._seen:
            return
        self._seen = found
        if found.problems:
            log.warning("the catalogue is broken, the last good one stays in use: %s", found.problems[0])
        else:
            self._good = found


class _Frameworks(Mapping[str, Framework]):
    def __init__(self, live: LiveCatalog) -> None:
        self._live = live

    def __getitem__(self, name: str) -> Framework:
        return self._live.now().frameworks[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._live.now().frameworks)

    def __len__(self) -> int:
        return len(self._live.now().frameworks)


class _RuntimeFiles(Mapping[str, Mapping[str, str]]):
    def __init__(self, live: LiveCatalog) -> None:
        self._live = live

    def __getitem__(self, name: str) -> Mapping[str, str]:
        catalog = self._live.now()
        return catalog.runtime_files(catalog.frameworks[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._live.now().frameworks)

    def __len__(self) -> int:
        return len(self._live.now().frameworks)
