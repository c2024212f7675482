"""What the composition root tells the local backend."""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from myapp.utils.shipped import shipped

RUNTIME = shipped("job-template") / "runtime"
MIB = 1024 * 1024


@dataclass(frozen=True)
class LocalSettings:
    """Settings of the local backend; sizes in bytes, cpu in millicores, None = find out."""

    home: Path                                    # CUBE_HOME
    node: str = field(default_factory=socket.gethostname)
    sandbox: Literal["auto", "bwrap", "none"] = "auto"
    hidden: tuple[str, ...] = ()                  # more files and folders no job may see (the platform's configuration)
    allow_sdist: bool = False                     # source distributions run code while they are built
    allow_urls: bool = False                      # requirements as `name @ https://...`
    compile_bytecode: bool = True
    readable_by_installer: tuple[str, ...] = ()   # folders of wheels, certificates, configuration of the index
    interpreters: dict[str, str] = field(default_factory=dict)     # allowed name -> path of a Python
    python: str = field(default_factory=lambda: getattr(sys, "_base_executable", sys.executable))
    uv: str | None = None                         # default: beside the platform's Python, else on PATH
    job_path: str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    log_limit: int = 512 * MIB                    # of one rank
    cpu: int | None = None
    memory: int | None = None
    gpu: int | None = None
    ports: tuple[int, int] = (20000, 29999)       # range handed out to jobs, both ends included
    runtime: Path = RUNTIME
    arm_timeout_s: float = 20.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "home", Path(os.path.abspath(self.home)))

    @property
    def jobs(self) -> str:
        return f"{self.home}/jobs"

    @property
    def run_dir(self) -> str:
        return f"{self.home}/run"

    @property
    def envs(self) -> str:
        return f"{self.home}/envs"
