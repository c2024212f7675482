"""Which server is meant, and with which token: options, the environment, a login, or the platform on this machine."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from myapp.client.errors import DENIED, UNREACHABLE, ClientError
from myapp.client.http import Api

_CHECKOUT = Path(__file__).resolve().parents[2]


def login_file(env: Mapping[str, str] = os.environ) -> Path:
    """`~/.config/cube-studio/login.json`, mode 600: {"current": url, "servers": {url: {"username", "token"}}}."""
    base = env.get("XDG_CONFIG_HOME") or str(Path(env.get("HOME") or Path.home()) / ".config")
    return Path(base) / "cube-studio" / "login.json"


def read_logins(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        found = {}
    except (OSError, ValueError) as error:
        raise ClientError(
            f"{path} cannot be read: {error}", f"Remove it and sign in again: rm {path}; cube login"
        ) from error
    if not isinstance(found, dict) or not isinstance(found.get("servers", {}), dict):
        raise ClientError(f"{path} is not a login file", f"Remove it and sign in again: rm {path}; cube login")
    return {"current": found.get("current", ""), "servers": found.get("servers", {})}


def save_login(path: Path, url: str, username: str, token: str) -> None:
    """Remember a token; the file is replaced in one step and only its owner may read it."""
    try:
        logins = read_logins(path)
    except ClientError:
        logins = {"servers": {}}
    logins["current"] = url
    logins["servers"][url] = {"username": username, "token": token}
    write_private(path, json.dumps(logins, indent=1) + "\n")


def write_private(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def normal_url(url: str) -> str:
    """`localhost:8080/` and `http://localhost:8080` are the same server."""
    scheme, colon, rest = url.partition("://")
    return f"{scheme}://{rest.rstrip('/')}" if colon else f"http://{url.rstrip('/')}"


@dataclass(frozen=True)
class LocalPlatform:
    """A platform that runs on this machine, of whose CUBE_HOME we may read the administrator's first password."""

    home: Path
    url: str

    @property
    def token_file(self) -> Path:
        return self.home / "run" / "cli-token"

    def password(self, env: Mapping[str, str]) -> str | None:
        try:
            return (self.home / "admin-password").read_text().strip() or None
        except OSError:
            return env.get("CUBE_ADMIN_PASSWORD") or None


def local_platform(env: Mapping[str, str]) -> LocalPlatform | None:
    """The one of CUBE_HOME; without that variable, of `./var` or of the checkout this command belongs to."""
    homes = [Path(env["CUBE_HOME"])] if env.get("CUBE_HOME") else [Path("var"), _CHECKOUT / "var"]
    for home in homes:
        try:
            url = (home / "run" / "url").read_text().strip()
        except OSError:
            continue
        if url:
            return LocalPlatform(home.absolute(), normal_url(url))
    return None


def open_api(url: str | None = None, env: Mapping[str, str] = os.environ) -> Api:
    """The server: `--url`, CUBE_URL, the platform of a CUBE_HOME that is set, the last login, a platform in `./var`.

    The token: CUBE_TOKEN, the login to that server, or, on the platform's own machine, a login as admin with the
    password in CUBE_HOME.
    """
    local = local_platform(env)
    logins = read_logins(login_file(env))
    chosen = url or env.get("CUBE_URL") or (local.url if local and env.get("CUBE_HOME") else "")
    chosen = chosen or logins["current"] or (local.url if local else "")
    if not chosen:
        raise ClientError(
            "no server is known",
            "Start one here (make run), or sign in to one: cube login http://host:8080",
            exit_code=UNREACHABLE,
        )
    chosen = normal_url(chosen)
    if env.get("CUBE_TOKEN"):
        return Api(chosen, env["CUBE_TOKEN"], token_from="CUBE_TOKEN")  # noqa: S106 - the name of a variable
    known = logins["servers"].get(chosen, {})
    token = known.get("token", "") if isinstance(known, dict) else ""
    if local and _same_server(local.url, chosen) and (not token or known.get("username") == "admin"):
        return _local_api(local, chosen, token, env)
    return Api(chosen, token)


def _local_api(local: LocalPlatform, url: str, token: str, env: Mapping[str, str]) -> Api:
    def sign_in() -> str | None:
        password = local.password(env)
        if password is None:
            return None
        try:
            with Api(url) as api:
                fresh = login(api, "admin", password)
        except ClientError as error:
            if error.exit_code == DENIED:
                return None
            raise
        try:
            write_private(local.token_file, fresh)
        except OSError:
            pass  # readable but not writable: the token is used, not kept
        return fresh

    if not token:
        try:
            token = local.token_file.read_text().strip()
        except OSError:
            token = ""
    return Api(url, token or sign_in() or "", renew=sign_in)


def login(api: Api, username: str, password: str) -> str:
    """An access token for a user's password."""
    reply = api.request(
        "POST",
        "/security/login",
        body={"username": username, "password": password, "provider": "db", "refresh": False},
        authorised=False,
    )
    token = (reply.json() or {}).get("access_token")
    if not token:
        raise ClientError("the server gave no access token", "Check that the URL is that of Cube Studio.")
    return str(token)


def _same_server(one: str, other: str) -> bool:
    first, second = urlsplit(one), urlsplit(other)
    here = ("localhost", "127.0.0.1", "::1")
    same_host = first.hostname == second.hostname or (first.hostname in here and second.hostname in here)
    return same_host and first.port == second.port
