"""What Linux offers for child processes beyond the standard library; elsewhere these do nothing."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_M_ARENA_MAX = -8


def die_with_parent(parent: int, signum: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel send `signum` to this process when `parent` dies; where it already has, end at once."""
    _prctl(_PR_SET_PDEATHSIG, int(signum))
    if os.getppid() != parent:
        os._exit(1)


def set_name(name: str) -> None:
    """The name that `ps`, `top` and `/proc/<pid>/comm` show: at most 15 bytes."""
    _prctl(_PR_SET_NAME, name.encode()[:15])


def trim_memory() -> None:
    """Give free heap pages back, and keep the heaps of later threads few: for a process about to fork its workers."""
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim"):    # glibc's
        libc.mallopt(_M_ARENA_MAX, 2)
        libc.malloc_trim(0)


def _prctl(option: int, value: int | bytes) -> None:
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    argument = ctypes.c_char_p(value) if isinstance(value, bytes) else ctypes.c_ulong(value)
    if libc.prctl(option, argument, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
