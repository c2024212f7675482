"""Plans the virtual environment of a job: which one it is and what builds it. The shim does the building."""

from __future__ import annotations

import configparser
import functools
import hashlib
import json
import os
import platform
import re
import shutil
import sys
from dataclasses import dataclass
from typing import Any

from myapp.backends.local import sandbox
from myapp.backends.local.settings import LocalSettings
from myapp.domain.ports import Cause, EnvironmentSpec, Rejected

INSTALLER_ENV = re.compile(r"(UV_|PIP_|SSL_CERT_|REQUESTS_CA_BUNDLE$|CURL_CA_BUNDLE$)|((HTTPS?|ALL|NO)_PROXY$)", re.I)
NOT_PASSED = re.compile(
    r"UV_(CACHE_DIR|PROJECT|PYTHON|LINK_MODE|COMPILE|SYSTEM|NO_CACHE|TARGET|PREFIX)|PIP_(TARGET|PREFIX|USER)"
)
PIP_TO_UV = {
    "index-url": ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_NO_INDEX"),
    "extra-index-url": ("UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_NO_INDEX"),
    "find-links": ("UV_FIND_LINKS",),
    "trusted-host": ("UV_INSECURE_HOST",),
    "cert": ("SSL_CERT_FILE",),
}
VERSION = re.compile(r"3\.\d{1,2}(\.\d{1,2})?")


@dataclass(frozen=True)
class Python:
    """What a job's Python adds: the folder to put first on PATH, what it must be able to read, and how to build it."""

    bin: str | None = None
    readable: tuple[str, ...] = ()
    variables: dict[str, str] | None = None
    plan: dict[str, Any] | None = None        # None: nothing to build


def plan(spec: EnvironmentSpec, settings: LocalSettings, bwrap: str | None, scratch: str) -> Python:
    """Raises Rejected when the environment can never be made here. `scratch` is a folder the installer may write in."""
    if spec.interpreter is not None:
        return _named(spec.interpreter, settings)
    if not spec.requirements and spec.python is None:
        return Python()
    requirements = normalise(spec.requirements, settings.allow_urls)
    if spec.python is not None and not VERSION.fullmatch(spec.python):
        raise Rejected(
            f"'{spec.python}' is not a Python version", Cause.ENVIRONMENT, "write it like 3.11, or name an interpreter"
        )
    python = spec.python or settings.python
    key = [python, platform.python_version(), platform.machine(), *platform.libc_ver(), *requirements]
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]
    path = f"{settings.envs}/{digest}"
    uv = find_uv(settings)
    return Python(
        bin=f"{path}/bin",
        readable=(path, *_base_folders(settings.python)),
        variables={"VIRTUAL_ENV": path},
        plan=_build(settings, bwrap, uv, python, requirements, path, scratch),
    )


def installer_env() -> dict[str, str]:
    """What the installer needs to reach the package index; no job ever sees it.

    The platform's own variables; and where they name no index, what pip has been told on this machine.
    """
    env = {
        name: value for name, value in os.environ.items() if INSTALLER_ENV.match(name) and not NOT_PASSED.match(name)
    }
    for option, names in PIP_TO_UV.items():
        if not any(name in env for name in names):
            value = env.get(f"PIP_{option.upper().replace('-', '_')}") or _pip_settings().get(option)
            if value:
                env[names[0]] = ",".join(value.split()) if option == "find-links" else " ".join(value.split())
    return env


@functools.cache
def _pip_settings() -> dict[str, str]:
    parser = configparser.RawConfigParser()
    user = os.path.expanduser("~")
    files = ["/etc/pip.conf", f"{user}/.pip/pip.conf", f"{user}/.config/pip/pip.conf", f"{sys.prefix}/pip.conf"]
    try:
        parser.read([*files, os.environ.get("PIP_CONFIG_FILE", "")], encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError):
        return {}
    settings: dict[str, str] = {}
    for section in ("global", "install"):
        if parser.has_section(section):
            settings.update(parser.items(section))
    return settings


def _local_links() -> list[str]:
    """Folders of wheels on this machine, which the sandboxed installer must see."""
    found = (installer_env().get("UV_FIND_LINKS") or "").split(",")
    return [path for path in found if os.path.isabs(path) and os.path.exists(path)]


def normalise(requirements: tuple[str, ...], allow_urls: bool) -> list[str]:
    """Sorted, each in its shortest form. Raises Rejected for options, addresses, paths and nonsense."""
    return list(_normalise(tuple(requirements), allow_urls))


@functools.lru_cache(maxsize=256)
def _normalise(requirements: tuple[str, ...], allow_urls: bool) -> tuple[str, ...]:
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    result = set()
    for text in requirements:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            raise Rejected(
                f"'{text[:200]}' is not a requirement", Cause.ENVIRONMENT,
                "write a package's name with an optional version, like scikit-learn>=1.5; no options, no paths",
            ) from None
        if requirement.url and not allow_urls:
            raise Rejected(
                f"'{requirement.name}' is required from an address", Cause.ENVIRONMENT,
                "name a version from the package index; an administrator can allow addresses",
            )
        requirement.name = canonicalize_name(requirement.name)
        result.add(str(requirement))
    return tuple(sorted(result))


def find_uv(settings: LocalSettings) -> str:
    beside = os.path.join(os.path.dirname(sys.executable), "uv")
    for candidate in (settings.uv, beside, shutil.which("uv")):
        if candidate and os.access(candidate, os.X_OK):
            return candidate
    raise Rejected(
        "uv, which builds the environments of jobs, is not installed", Cause.ENVIRONMENT,
        "install uv into the platform's environment, or name its path in the settings",
    )


def _named(name: str, settings: LocalSettings) -> Python:
    path = settings.interpreters.get(name)
    if path is None:
        known = ", ".join(sorted(settings.interpreters)) or "none"
        raise Rejected(
            f"the interpreter '{name}' is not known here (known: {known})", Cause.ENVIRONMENT,
            "use requirements instead, or ask an administrator to allow it",
        )
    if not os.access(path, os.X_OK):
        raise Rejected(f"the interpreter '{name}' ({path}) cannot be executed", Cause.ENVIRONMENT, "correct its path")
    return Python(bin=os.path.dirname(os.path.abspath(path)), readable=_base_folders(path))


def _base_folders(python: str) -> tuple[str, ...]:
    """Folders a Python needs: its prefix and, for one in a virtual environment or behind a link, where it points."""
    real = os.path.realpath(python)
    folders = {os.path.dirname(os.path.dirname(os.path.abspath(path))) for path in (python, real)}
    return tuple(sorted(folder for folder in folders if folder not in ("/", "/usr", "/usr/local")))


def _build(
    settings: LocalSettings, bwrap: str | None, uv: str, python: str, requirements: list[str], path: str, scratch: str
) -> dict[str, Any]:
    # Wheels run no code when they are installed, so all environments are within reach and files are linked from the
    # cache. A source distribution does: it gets its own environment to write in, and a cache of its own.
    cache = f"{scratch}/uv-cache" if settings.allow_sdist else f"{settings.envs}/.cache"
    writable = (path, scratch) if settings.allow_sdist else (settings.envs, scratch)
    steps = [[uv, "venv", "--no-project", "--allow-existing", "--python", python, path]]
    if requirements:
        install = [uv, "pip", "install", "--python", f"{path}/bin/python"]
        install += [] if settings.allow_sdist else ["--only-binary", ":all:"]
        install += ["--compile-bytecode"] if settings.compile_bytecode else []
        steps.append([*install, "--", *requirements])
    if bwrap:
        view = sandbox.View(
            home=str(settings.home), cwd="/", temporary=scratch, writable=writable,
            readable=(uv, *_base_folders(settings.python), *_local_links(), *settings.readable_by_installer),
            hidden=settings.hidden,
        )
        steps = [sandbox.argv(bwrap, view, step) for step in steps]
    names = ", ".join(re.split(r"[^A-Za-z0-9._-]", r)[0] for r in requirements) or "an empty environment"
    return {
        "path": path,
        "label": f"{names[:200]} (environment {os.path.basename(path)[:6]})",
        "requirements": requirements,
        "uv": uv,
        "cache": cache,
        "steps": steps,
        "sandboxed": bwrap is not None,
        "env": {
            "PATH": settings.job_path,
            "LANG": "C.UTF-8",
            "HOME": scratch,
            "TMPDIR": scratch,
            "UV_CACHE_DIR": cache,
            "UV_PYTHON_DOWNLOADS": "never",
            "UV_NO_PROGRESS": "1",
            "UV_LINK_MODE": "copy" if settings.allow_sdist else "hardlink",
        },
    }
