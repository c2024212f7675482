"""Every setting of the platform, typed: `CUBE_<NAME>` in the environment or in `$CUBE_HOME/cube.env`."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from myapp.utils.shipped import shipped


class Settings(BaseSettings):
    """See `docs/reference/settings.md`, which is generated from these descriptions."""

    model_config = SettingsConfigDict(env_prefix="CUBE_", extra="ignore", frozen=True)

    home: Path = Field(Path("var"), description="Folder that holds everything the platform keeps on this machine.")
    host: str = Field("127.0.0.1", description="Address the web server listens on.")
    port: int = Field(8080, ge=0, le=65535, description="Port the web server listens on.")
    public_url: str = Field("", description="URL under which people reach the web server, when behind a proxy.")

    database_url: str = Field("", description="SQLAlchemy URL; empty: SQLite in CUBE_HOME.")
    redis_url: str = Field("", description="Redis URL; empty: a Redis of our own on a unix socket in CUBE_HOME.")
    storage_url: str = Field(
        "", description="fsspec URL of the object store for sealed logs and artifacts; empty: CUBE_HOME."
    )
    secret_key: SecretStr = Field(
        SecretStr(""), description="Signs sessions and tokens; empty: made once, kept in CUBE_HOME."
    )
    admin_password: SecretStr = Field(SecretStr(""), description="First password of the user admin; empty: random.")

    web_workers: int = Field(1, ge=1, le=64, description="Web server processes.")
    web_threads: int = Field(
        24, ge=2, le=512, description="Threads of each web process; every open event stream holds one."
    )
    worker_threads: int = Field(4, ge=1, le=64, description="Doorbells a worker process answers at once.")
    login_rate: str = Field(
        "10 per minute", description="Login attempts per user name and address, on form and API alike."
    )
    session_hours: float = Field(12, gt=0, description="Life of a browser session and of a login's access token.")
    secure_cookies: bool = Field(False, description="Send cookies over HTTPS only; set it behind a TLS proxy.")

    node: str = Field(default_factory=socket.gethostname, description="Name of this machine for the local backend.")
    local_sandbox: Literal["auto", "bwrap", "none"] = Field("auto", description="Sandbox of local jobs.")
    local_cpu: float | None = Field(
        None, gt=0, description="CPUs local jobs may use in all; empty: all of the machine."
    )
    local_memory: str = Field(
        "", description="Memory local jobs may use in all, e.g. 16Gi; empty: 90 % of the machine."
    )
    local_gpu: int | None = Field(None, ge=0, description="GPUs local jobs may use; empty: all of the machine.")
    local_allow_sdist: bool = Field(False, description="Let job environments build source packages (runs their code).")
    local_interpreters: dict[str, str] = Field(
        {}, description='Interpreters jobs may name, as JSON: {"name": "/path"}.'
    )
    log_limit: str = Field("512Mi", description="Most log kept per rank; the rest is dropped with a notice.")

    catalog_root: Path | None = Field(None, description="Folder with frameworks/ and job/; empty: the one shipped.")
    infra_retries: int = Field(5, ge=0, description="Attempts a task may lose to the infrastructure before it fails.")
    sample: bool = Field(True, description="Load and run the sample pipeline on the first start.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least severe message logged.")

    @property
    def root(self) -> Path:
        return self.home.absolute()

    @property
    def database(self) -> str:
        return self.database_url or f"sqlite:///{self.root / 'cube.db'}"

    @property
    def redis(self) -> str:
        return self.redis_url or f"unix://{self.root / 'run' / 'redis.sock'}"

    @property
    def embedded_redis(self) -> bool:
        return not self.redis_url

    @property
    def catalog(self) -> Path:
        return self.catalog_root or shipped("job-template")


def load_settings(**overrides: object) -> Settings:
    """Settings from the environment, then `$CUBE_HOME/cube.env`, then the defaults."""
    home = Path(str(overrides.get("home") or os.environ.get("CUBE_HOME") or "var"))
    file = home / "cube.env"
    return Settings(_env_file=file if file.is_file() else None, **overrides)  # type: ignore[call-arg, arg-type]
