"""The results as tables for a terminal (they are Markdown as well)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

NOISY = 0.15
SHIPPED = ("airflow", "prefect", "dagster")  # what the ratios are about: the best of these
TUNED = ("airflow", "prefect-tuned", "dagster-tuned")

# a row of the comparison: its title, where the figure is, its unit, the target for Cube Studio
_ROWS: tuple[tuple[str, tuple[str, ...], str, float | None], ...] = (
    ("one-task run", ("w1", "wall_s"), "s", 0.15),
    ("chain of 20, per task", ("w2", "wall_ms_per_task"), "ms", 40),
    ("1 -> 50 -> 1, per task", ("w3", "wall_ms_per_task"), "ms", 20),
    ("one-task runs at once, per run", ("w4", "wall_ms_per_task"), "ms", 60),
    ("CPU of a one-task run", ("w1", "cpu_ms_per_task"), "ms", None),
    ("CPU per task, chain", ("w2", "cpu_ms_per_task"), "ms", 35),
    ("CPU per task, fan-out", ("w3", "cpu_ms_per_task"), "ms", 35),
    ("CPU per run, at once", ("w4", "cpu_ms_per_task"), "ms", 35),
    ("idle memory (PSS)", ("idle", "pss_mb"), "MB", 260),
    ("idle CPU of a core", ("idle", "cpu_percent_of_a_core"), "%", 2),
    ("list of 50, CPU", ("list", "clients_8", "cpu_ms"), "ms", 6),
    ("list of 50, p95, 8 clients", ("list", "clients_8", "p95_ms"), "ms", 40),
    ("first start", ("first_start", "wall_s"), "s", None),
)


def table(results: dict[str, Any]) -> str:
    systems: dict[str, Any] = results["systems"]
    names = [name for name in ("cube", *SHIPPED, *TUNED[1:], "luigi") if name in systems]
    head = ["", "target", *(f"{name} {systems[name]['version']}" if name != "cube" else "cube" for name in names)]
    groups = {"as shipped / cube": SHIPPED, "tuned / cube": TUNED}
    shown = {title: group for title, group in groups.items() if "cube" in names and set(group[1:]) & set(names)}
    lines = [head + [f"best of three {title}" for title in shown]]
    for title, path, unit, target in _ROWS:
        cells = [_cell(systems[name], path, unit) for name in names]
        line = [title, "" if target is None else f"<= {target:g} {unit}", *cells]
        lines.append(line + [ratio(systems, path, group) for group in shown.values()])
    return "\n".join([*_markdown(lines), "", *_alone(systems.get("cube", {})), "", *_notes(results)])


def figure(system: dict[str, Any], path: Sequence[str]) -> float | None:
    found: Any = system
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return float(found) if isinstance(found, int | float) else None


def ratio(systems: dict[str, Any], path: Sequence[str], group: Sequence[str] = SHIPPED) -> str:
    """How many times more the best of the group needs."""
    ours = figure(systems.get("cube", {}), path)
    theirs = [value for name in group if (value := figure(systems.get(name, {}), path)) is not None]
    if not ours or not theirs:
        return "-"
    return f"{min(theirs) / ours:.1f}"


def _cell(system: dict[str, Any], path: Sequence[str], unit: str) -> str:
    value = figure(system, path)
    if value is None:
        return "-"
    part: Any = system.get(path[0], {})
    if len(path) > 2:
        part = part.get(path[1], {})
    noisy = isinstance(part, dict) and part.get("noise", 0) > NOISY
    shown = f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"
    return f"{shown} {unit}{' ~' if noisy else ''}"


def _alone(cube: dict[str, Any]) -> list[str]:
    """What is measured of Cube Studio only."""
    lines = [["Cube Studio alone", "target", "figure"]]
    for title, path, unit, target in (
        ("ready, when set up", ("ready", "wall_s"), "s", "<= 6 s"),
        ("submit, CPU of the web process", ("submit", "web_cpu_ms"), "ms", "<= 15 ms"),
        ("submit, p95", ("submit", "p95_ms"), "ms", ""),
        ("100 runs at once", ("w4", "wall_s"), "s", "<= 6 s"),
    ):
        lines.append([title, target, _cell(cube, path, unit)])
    for tasks, found in cube.get("flat", {}).items():
        wall, cpu = _cell(found, ("wall_ms_per_task",), "ms"), _cell(found, ("cpu_ms_per_task",), "ms CPU")
        noisy = " ~" if found.get("noise", 0) > NOISY else ""
        lines.append([f"a run of {int(tasks):,} tasks, per task", "flat", f"{wall}, {cpu}{noisy}"])
    if many := cube.get("many"):
        for title, key in (("one-task run", "w1"), ("1 -> 50 -> 1", "w3")):
            wall, before = _cell(many, (key, "wall_s"), "s"), _cell(cube, (key, "wall_s"), "s")
            lines.append([f"{title}, {many['runs']:,} runs in the database", f"flat: {before} without", wall])
    for key in ("list", "many_list"):
        if (found := cube.get(key)) and "runs" in found:
            wall, cpu = _cell(found, ("clients_8", "p95_ms"), "ms p95"), _cell(found, ("clients_8", "cpu_ms"), "ms CPU")
            lines.append([f"list of 50 of {found['runs']:,} runs, 8 clients", "<= 40 ms, 6 ms", f"{wall}, {cpu}"])
    return _markdown(lines) if len(lines) > 1 and cube else []


def _notes(results: dict[str, Any]) -> list[str]:
    machine = results.get("machine", {})
    return [
        f"{results.get('size')}, {results.get('at')}, {machine.get('cpus')} CPUs, Python {machine.get('python')}; "
        "every task /bin/true, two at once; CPU of the whole process tree.",
        f"~ others used more than {NOISY:.0%} of two CPUs meanwhile. Cube Studio's list is of 100,000 runs (rows "
        "written by SQL), the peers' of those they had just run.",
        *(f"{name} failed: {one['failed']}" for name, one in results["systems"].items() if "failed" in one),
    ]


def _markdown(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    padded = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in padded]
    return [lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]]
