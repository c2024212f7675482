"""Forks one shim per rank on request, so that no rank pays for the start of an interpreter.

    python -I -S server.py FD

FD is one end of a SOCK_SEQPACKET pair. Each request `{"seq", "folder", "rank", "installer_env"}` is answered by the new
shim itself with `{"seq", "pid"}`, or `{"seq", "error"}`. When the other end closes, the server ends; its shims do not.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from cube_shim import files, process, shim

REQUEST_LIMIT = 256 * 1024


def _ignore(number: int, frame: object) -> None:
    """Only the wake-up descriptor matters."""


def serve(fd: int) -> None:
    machine = shim.Machine(files.boot_id(), files.pid_namespace())
    wake_read, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.signal(signal.SIGCHLD, _ignore)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    os.set_inheritable(fd, False)
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    poller.register(wake_read, select.POLLIN)
    gc.collect()
    gc.freeze()
    gc.disable()
    while True:
        ready = [number for number, _ in poller.poll()]
        if wake_read in ready:
            os.read(wake_read, 4096)
            _collect_children()
        if fd not in ready:
            continue
        data = os.read(fd, REQUEST_LIMIT)
        if not data:
            return
        request = json.loads(data)
        signal.pthread_sigmask(signal.SIG_BLOCK, process.OWN_SIGNALS)
        try:
            pid = os.fork()
        except OSError as error:
            os.write(fd, json.dumps({"seq": request["seq"], "error": str(error)}).encode())
            pid = -1
        if pid == 0:
            _become_shim(request, fd, (wake_read, wake_write), machine)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, process.OWN_SIGNALS)


def _become_shim(request: dict[str, object], fd: int, wake: tuple[int, int], machine: shim.Machine) -> None:
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in wake:
            os.close(number)
        code = shim.main(request, fd, machine)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


def _collect_children() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


if __name__ == "__main__":
    serve(int(sys.argv[1]))
