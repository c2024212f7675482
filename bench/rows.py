"""Many ended runs at once: copies of one run's rows, written by SQL into the stopped platform's SQLite file.

Through the API a million runs would take hours. Copied are the run, its task and its attempt.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

BATCH = 50_000
# table -> columns that hold another row's id, each with that row's table
_TABLES: dict[str, dict[str, str]] = {
    "run": {},
    "task_run": {"run_id": "run"},
    "attempt": {"run_id": "run", "task_run_id": "task_run"},
}
_UNIQUE_TEXT = {"attempt": "object_name"}


def add_runs(database: Path, run_id: int, count: int) -> None:
    """`count` copies of the ended run `run_id` of one task. The platform must not be running."""
    connection = sqlite3.connect(database)
    try:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        first = {table: _last_id(connection, table) + 1 for table in _TABLES}
        for done in range(0, count, BATCH):
            with connection:
                for table in _TABLES:
                    _copy(connection, table, run_id, first, done, min(count, done + BATCH))
        with connection:
            for table in _TABLES:
                connection.execute(
                    "UPDATE sqlite_sequence SET seq = ? WHERE name = ?", (_last_id(connection, table), table)
                )
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        connection.close()


def _copy(connection: sqlite3.Connection, table: str, run_id: int, first: dict[str, int], start: int, end: int) -> None:
    """Copies number `start` to `end` of the run's one row in this table."""
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    links = _TABLES[table]
    values = []
    for column in columns:
        if column == "id":
            values.append(f"{first[table]} + n.i")
        elif column in links:
            values.append(f"{first[links[column]]} + n.i")
        elif column == _UNIQUE_TEXT.get(table):
            values.append(f"'copy-' || ({first[table]} + n.i)")
        else:
            values.append(f'source."{column}"')
    key = "id" if table == "run" else "run_id"
    names = ", ".join(f'"{column}"' for column in columns)
    connection.execute(
        f"WITH RECURSIVE n(i) AS (SELECT ? UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?) "
        f"INSERT INTO {table} ({names}) SELECT {', '.join(values)} FROM n, {table} AS source WHERE source.{key} = ?",
        (start, end, run_id),
    )


def _last_id(connection: sqlite3.Connection, table: str) -> int:
    return int(connection.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()[0])
