"""A file touched by a part that runs alone, looked at by container health checks: cheap, and local to the container."""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from pathlib import Path

from myapp.client.errors import FAILED

EVERY_S = 5.0
OLD_S = 20.0


def path(part: str) -> Path:
    return Path(tempfile.gettempdir()) / f"cube-{os.getuid()}-{part}.alive"


def start(part: str) -> None:
    """Beat from now on, as long as this process's interpreter runs."""
    file = path(part)
    file.unlink(missing_ok=True)

    def beat() -> None:
        while True:
            try:
                file.touch()
            except OSError:
                pass  # a full disk is not a dead process; the check will say so
            time.sleep(EVERY_S)

    threading.Thread(target=beat, name="heartbeat", daemon=True).start()


def alive(args: argparse.Namespace) -> int:
    """The command: 0 when the part's heart has beaten lately."""
    try:
        age = time.time() - path(args.part).stat().st_mtime
    except OSError:
        print(f"{args.part}: no sign of life on this machine")
        return FAILED
    print(f"{args.part}: {'alive' if age < OLD_S else 'silent'} ({age:.0f} s ago)")
    return 0 if age < OLD_S else FAILED
