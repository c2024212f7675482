"""What must be there before the parts start: schema, permissions, administrator, catalogue; at first the sample.

Every step is safe to repeat and to run in several processes at once; one that was cut off is finished the next time.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from myapp.config import Settings
from myapp.supervisor.errors import StartError

if TYPE_CHECKING:
    from myapp.catalog import Catalog
    from myapp.composition import Platform
    from myapp.domain.frameworks.framework import Framework

SAMPLE = "digits"
SAMPLE_KEY = "first-start"
_MYAPP = Path(__file__).resolve().parent.parent
_EXAMPLES = _MYAPP / "example" / "pipeline"


@dataclass(frozen=True)
class Prepared:
    """`password_made`: the administrator's, when it was made up just now. `notes`: for the person who started it."""

    password_made: str | None = None
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def prepare(settings: Settings) -> Prepared:
    """Everything in order. Raises StartError."""
    from sqlalchemy.exc import OperationalError

    from myapp.composition import create_platform
    from myapp.domain.errors import CubeError
    from myapp.security.bootstrap import ensure_admin
    from myapp.services.create_project import ensure_public_project

    try:
        platform = create_platform(settings)
        upgrade(settings, platform)
        password = ensure_admin(platform)
        notes = [f"catalogue: {line}" for line in sync(settings, platform)["refused"]]
        ensure_public_project(platform.context)
        if settings.sample:
            notes += _sample_once(settings, platform)
        platform.database.dispose()
    except CubeError as error:
        raise StartError(error.message, error.resolution or "Mend it and start again.") from error
    except OperationalError as error:
        raise StartError(
            f"the database cannot be used: {error.orig}", "Check CUBE_DATABASE_URL, and that the database server runs."
        ) from error
    except ValueError as error:
        raise StartError(str(error), "Mend the setting and start again.") from error
    return Prepared(password, notes)


def upgrade(settings: Settings, platform: Platform | None = None) -> bool:
    """Bring schema and permissions up to date; True when anything was done. Raises StartError for a newer database."""
    from myapp.persistence import schema

    try:
        changed = schema.upgrade(settings.database)
    except schema.UnknownRevision as error:
        raise StartError(str(error), "Use the newer program, or a copy of the database from before.") from error
    memory = _Memory(settings)
    if changed or memory.get("permissions") != _permissions_mark(settings):
        changed = _sync_permissions(settings, platform) or changed
        memory.put("permissions", _permissions_mark(settings))
    return changed


def _sync_permissions(settings: Settings, platform: Platform | None) -> bool:
    from myapp import create_app
    from myapp.composition import create_platform
    from myapp.security.bootstrap import sync_permissions

    return sync_permissions(create_app(platform or create_platform(settings)))


def sync(settings: Settings, platform: Platform | None = None) -> dict[str, list[str]]:
    """Load the catalogue into the database: `lines` say what changed, `refused` what is broken, with file and line."""
    from myapp.composition import create_platform
    from myapp.domain.permissions import PLATFORM
    from myapp.services.sync_catalog import sync_catalog

    platform = platform or create_platform(settings)
    if platform.catalog.problems:
        return {"lines": [], "refused": [str(problem) for problem in platform.catalog.problems]}
    synced = sync_catalog(platform.context, PLATFORM, platform.catalog)
    outcomes = {"created": synced.created, "updated": synced.updated, "retired": synced.retired}
    lines = [f"template {name} {outcome}" for outcome, names in outcomes.items() for name in names]
    changed = _framework_changes(settings, platform.catalog)
    same = len(platform.catalog.frameworks) - sum(not line.endswith(" removed") for line in changed)
    unchanged = f"{len(synced.unchanged)} templates and {same} frameworks unchanged"
    return {"lines": [*lines, *changed, unchanged], "refused": []}


def _framework_changes(settings: Settings, catalog: Catalog) -> list[str]:
    """What has changed about the frameworks since they were last looked at on this CUBE_HOME."""
    memory = _Memory(settings)
    known = memory.get("frameworks")
    before: dict[str, str] = known if isinstance(known, dict) else {}
    found = {name: _framework_mark(one) for name, one in catalog.frameworks.items()}
    if found == before:
        return []
    memory.put("frameworks", found)
    lines = [f"framework {name} {'changed' if name in before else 'added'}"
             for name, mark in sorted(found.items()) if before.get(name) != mark]
    return [*lines, *(f"framework {name} removed" for name in sorted(before) if name not in found)]


def _framework_mark(framework: Framework) -> str:
    return hashlib.sha256(framework.model_dump_json().encode()).hexdigest()[:16]


def _sample_once(settings: Settings, platform: Platform) -> list[str]:
    """The example pipelines, and one run of the sample, unless that was done before on this CUBE_HOME and database."""
    from myapp.catalog.yamldoc import load_one
    from myapp.domain.permissions import PLATFORM
    from myapp.services.publish_pipeline import publish_pipeline
    from myapp.services.submit_run import submit_run

    memory = _Memory(settings)
    if memory.get("sample") == _database_mark(settings):
        return []
    published: dict[str, int] = {}
    for path in sorted(_EXAMPLES.glob("*/pipeline.yaml")):
        published[path.parent.name] = publish_pipeline(platform.context, PLATFORM, load_one(path.read_text())).id
    notes = []
    if SAMPLE in published:
        submitted = submit_run(
            platform.context, PLATFORM, pipeline_id=published[SAMPLE], idempotency_key=f"{SAMPLE}-{SAMPLE_KEY}"
        )
        if submitted.created:
            command = f"{shown_command(settings.root)} describe run {submitted.run_id}"
            notes.append(f"the sample pipeline {SAMPLE} is running; follow it: {command}")
    memory.put("sample", _database_mark(settings))
    return notes


def shown_command(home: Path) -> str:
    """How this `cube` is called from this folder so that it finds the platform of `home`."""
    here, home = Path.cwd(), home.resolve()
    if home in ((here / "var").resolve(), _MYAPP.parent / "var"):
        return _command()
    path = f"./{home.relative_to(here)}" if home.is_relative_to(here) and home != here else str(home)
    return f"CUBE_HOME={shlex.quote(path)} {_command()}"


def _command() -> str:
    """By its name where that finds it, else by its path."""
    script = Path(sys.executable).with_name("cube")
    found = shutil.which("cube")
    if (found is not None and Path(found).resolve() == script.resolve()) or not script.exists():
        return "cube"
    here = Path.cwd()
    return str(script.relative_to(here)) if script.is_relative_to(here) else str(script)


class _Memory:
    """`run/set-up.json`: what need not be done again. Losing it costs a second."""

    def __init__(self, settings: Settings) -> None:
        self._path = settings.root / "run" / "set-up.json"

    def get(self, name: str) -> Any:
        return self._read().get(name)

    def put(self, name: str, value: Any) -> None:
        known = {**self._read(), name: value}
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = self._path.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(known))
        part.replace(self._path)

    def _read(self) -> dict[str, Any]:
        try:
            found = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


def _database_mark(settings: Settings) -> str:
    """Names the database: a file is another one when it was made anew."""
    made = ""
    if not settings.database_url:
        made = str((settings.root / "cube.db").stat().st_ino)
    return hashlib.sha256(f"{settings.database} {made}".encode()).hexdigest()[:16]


def _permissions_mark(settings: Settings) -> str:
    """Changes with the database and with the code that declares permissions."""
    mark = hashlib.sha256(_database_mark(settings).encode())
    for path in _sources(_MYAPP / "views", _MYAPP / "security"):
        stat = path.stat()
        mark.update(f"{path.name} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return mark.hexdigest()[:16]


def _sources(*folders: Path) -> Iterable[Path]:
    return sorted(path for folder in folders for path in folder.glob("*.py"))
