"""The key that signs sessions and tokens: given as a setting, or made once and kept in CUBE_HOME for its owner only."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

_NAME = "secret-key"
_SHORTEST = 32


def load_secret_key(root: Path, given: str = "") -> str:
    """The signing key. Several processes may ask at once: they all get the same one.

    Raises ValueError for a key too short to be secret.
    """
    if given:
        if len(given) < _SHORTEST:
            raise ValueError(f"CUBE_SECRET_KEY must have at least {_SHORTEST} characters: try `openssl rand -hex 32`")
        return given
    path = root / _NAME
    key = _read(path)
    if key is None:
        write_private(path, secrets.token_urlsafe(48) + "\n", replace=False)
        key = _read(path)
    if key is None or len(key) < _SHORTEST:
        raise ValueError(f"{path} does not hold a key: delete it, and a new one is made (everybody must sign in again)")
    return key


def write_private(path: Path, text: str, *, replace: bool) -> None:
    """Write a whole file of mode 600 at once; without `replace`, one already there wins."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            draft.replace(path)
        else:
            try:
                os.link(draft, path)
            except FileExistsError:
                pass
    finally:
        draft.unlink(missing_ok=True)


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        return None
