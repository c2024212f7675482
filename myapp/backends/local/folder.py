"""The folder of one attempt: where each file is, and how it is read and written.

    spec.json             the launch, complete from the folder's first moment (the folder is created by rename)
    go  stop              release and stop request, written by rename
    rank-<n>/             identity.json, stage.json, status.json: written by that rank's shim
    out/  job/  home/  tmp/  shm/   what the job sees
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from typing import Any

SUBFOLDERS = ("out", "out/values", "out/artifacts", "home", "tmp")


class Folder:
    def __init__(self, jobs: str, object_name: str) -> None:
        self.jobs = jobs
        self.name = object_name
        self.path = f"{jobs}/{object_name}"

    def at(self, *parts: str) -> str:
        return "/".join((self.path, *parts))

    def rank(self, rank: int, name: str) -> str:
        return f"{self.path}/rank-{rank}/{name}"

    def create(self, spec: dict[str, Any], files: dict[str, str]) -> bool:
        """Create the folder, whole or not at all. False when one is there already. Raises OSError."""
        new = f"{self.jobs}/.new-{uuid.uuid4().hex}"
        os.mkdir(new, 0o700)
        try:
            for name in SUBFOLDERS:
                os.mkdir(f"{new}/{name}", 0o700)
            if len(spec["ranks"]) > 1:
                os.mkdir(f"{new}/shm", 0o700)
            for rank in spec["ranks"]:
                os.mkdir(f"{new}/rank-{rank['rank']}", 0o700)
            os.mkdir(f"{new}/job", 0o700)
            for name, text in files.items():
                path = f"{new}/job/{name}"
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w", encoding="utf-8") as f:
                    f.write(text)
                os.chmod(path, 0o500 if text.startswith("#!") else 0o400)
            write_json(f"{new}/spec.json", spec)
            os.rename(new, self.path)
            return True
        except OSError as error:
            shutil.rmtree(new, ignore_errors=True)
            if isinstance(error, FileExistsError) or error.errno == 39:        # ENOTEMPTY
                return False
            raise

    def remove(self) -> None:
        """Take the folder away at once, then delete it. A no-op when already gone."""
        gone = f"{self.jobs}/.gone-{uuid.uuid4().hex}"
        try:
            os.rename(self.path, gone)
        except FileNotFoundError:
            return
        remove_tree(gone)


def remove_tree(path: str) -> None:
    """Delete a folder a job could write in, as far as that can be done: unreadable subfolders are opened up, links are
    not followed, and folders are taken out of one another first, so that neither their depth nor the length of their
    paths matters."""
    token, number = uuid.uuid4().hex, 0
    folders = [path]
    while folders:
        folder = folders.pop()
        try:
            os.chmod(folder, 0o700)
            with os.scandir(folder) as entries:
                found = [(entry.path, entry.is_dir(follow_symlinks=False)) for entry in entries]
        except OSError:
            continue
        for inner, is_folder in found:
            try:
                if is_folder:
                    os.chmod(inner, 0o700)
                    number += 1
                    os.rename(inner, f"{path}/{token}-{number}")
                    folders.append(f"{path}/{token}-{number}")
                else:
                    os.unlink(inner)
            except OSError:
                pass
        if folder != path:
            _remove_folder(folder)
    _remove_folder(path)


def _remove_folder(path: str) -> None:
    try:
        os.rmdir(path)
    except OSError:
        pass


def read_json(path: str) -> Any:
    """The document, or None when there is none. Raises OSError (not for a missing file), ValueError when torn."""
    try:
        with open(path, "rb", buffering=0) as f:
            return json.loads(f.read())
    except (FileNotFoundError, NotADirectoryError):
        return None


def write_json(path: str, document: Any) -> None:
    write_text(path, json.dumps(document))


def write_text(path: str, text: str) -> None:
    """Replace `path` by rename, mode 600."""
    temporary = f"{path}.{uuid.uuid4().hex[:12]}"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "w", encoding="utf-8") as f:
            f.write(text)
        os.replace(temporary, path)
    except BaseException:
        try:
            os.unlink(temporary)
        except OSError:
            pass
        raise
