"""What stops a start, and what the person in front of it can do."""

from __future__ import annotations


class StartError(Exception):
    """The platform cannot start. `resolution` says what to do."""

    def __init__(self, message: str, resolution: str) -> None:
        super().__init__(message)
        self.message = message
        self.resolution = resolution
