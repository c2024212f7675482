"""What goes wrong for a caller, with the exit code that says so."""

from __future__ import annotations

from typing import Any

FAILED = 1
USAGE = 2
UNREACHABLE = 3
DENIED = 4
INTERRUPTED = 130


class ClientError(Exception):
    """A message, what to do about it, and the exit code."""

    def __init__(
        self,
        message: str,
        resolution: str | None = None,
        *,
        exit_code: int = FAILED,
        status: int = 0,
        detail: Any = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.resolution = resolution
        self.exit_code = exit_code
        self.status = status
        self.detail = detail

    def lines(self) -> list[str]:
        """As it is shown: the message, the problems it carries, the resolution."""
        said = [f"error: {self.message}"]
        problems = self.detail if isinstance(self.detail, list) else []
        only = problems[0] if len(problems) == 1 and isinstance(problems[0], dict) else None
        if only is not None and only.get("message") and str(only["message"]) in self.message:
            line = f"line {only['line']}" if only.get("line") else ""
            more = ": ".join(part for part in (line, self.resolution or only.get("resolution") or "") if part)
            said += [f"  {more}"] if more else []
        elif len(problems) > 1 or (problems and not self.resolution):
            said += [f"  {problem_line(problem)}" for problem in problems]
        elif self.resolution:
            said.append(f"  {self.resolution}")
        return said


def problem_line(problem: Any) -> str:
    """`line 12, spec.tasks[2].args.script (task train): message -> resolution`."""
    if not isinstance(problem, dict):
        return str(problem)
    place = []
    if problem.get("line"):
        place.append(f"line {problem['line']}")
    if problem.get("field"):
        place.append(str(problem["field"]))
    where = ", ".join(place) + (f" (task {problem['node']})" if problem.get("node") else "")
    text = f"{where}: {problem.get('message', '')}" if where else str(problem.get("message", ""))
    text = f"warning: {text}" if problem.get("severity") == "warning" else text
    remedy = str(problem.get("resolution") or "")
    return f"{text} -> {remedy}" if remedy and remedy not in text else text
