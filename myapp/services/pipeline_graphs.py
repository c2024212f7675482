"""Graphs of pipeline versions, parsed once per process: versions are immutable, so a cache can never be stale."""

from __future__ import annotations

import threading
from collections import OrderedDict

from sqlalchemy import Connection

from myapp.domain.pipelinegraph import PipelineGraph
from myapp.persistence import run_store

MAX_CACHED_TASKS = 60_000


class PipelineGraphs:
    """Bounded by the number of tasks kept, least recently used first out. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._graphs: OrderedDict[int, PipelineGraph] = OrderedDict()
        self._size = 0

    def get(self, connection: Connection, version_id: int) -> PipelineGraph:
        with self._lock:
            graph = self._graphs.get(version_id)
            if graph is not None:
                self._graphs.move_to_end(version_id)
                return graph
        graph = PipelineGraph.from_json(run_store.graph(connection, version_id))
        with self._lock:
            if version_id not in self._graphs:
                self._graphs[version_id] = graph
                self._size += len(graph.tasks)
                while self._size > MAX_CACHED_TASKS and len(self._graphs) > 1:
                    _, old = self._graphs.popitem(last=False)
                    self._size -= len(old.tasks)
        return graph
