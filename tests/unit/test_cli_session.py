"""Which server is meant, and as whom."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from myapp.client import session
from myapp.client.errors import ClientError


def platform(home: Path, url: str) -> Path:
    (home / "run").mkdir(parents=True)
    (home / "run" / "url").write_text(url + "\n")
    (home / "run" / "cli-token").write_text("local-token")
    return home


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A person's environment, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(session, "_CHECKOUT", tmp_path / "checkout")
    return {"HOME": str(tmp_path / "person")}


def test_nothing_known(env: dict[str, str]) -> None:
    with pytest.raises(ClientError, match="no server is known") as caught:
        session.open_api(env=env)
    assert caught.value.exit_code == 3


def test_the_order_of_servers(env: dict[str, str], tmp_path: Path) -> None:
    platform(tmp_path / "var", "http://127.0.0.1:1")
    assert session.open_api(env=env).url == "http://127.0.0.1:1"
    session.save_login(session.login_file(env), "http://server:2", "bob", "bobs")
    assert session.open_api(env=env).url == "http://server:2"
    env["CUBE_HOME"] = str(platform(tmp_path / "home", "http://127.0.0.1:3"))
    assert session.open_api(env=env).url == "http://127.0.0.1:3"
    env["CUBE_URL"] = "server:4/"
    assert session.open_api(env=env).url == "http://server:4"
    assert session.open_api("https://server:5/cube/", env).url == "https://server:5/cube"


def test_a_platform_of_the_checkout_is_found_from_anywhere(env: dict[str, str], tmp_path: Path) -> None:
    platform(tmp_path / "checkout" / "var", "http://127.0.0.1:6")
    assert session.open_api(env=env).url == "http://127.0.0.1:6"


def test_the_order_of_tokens(env: dict[str, str], tmp_path: Path) -> None:
    platform(tmp_path / "var", "http://127.0.0.1:1")
    assert session.open_api(env=env).token == "local-token"
    session.save_login(session.login_file(env), "http://127.0.0.1:1", "bob", "bobs")
    assert session.open_api(env=env).token == "bobs"
    assert session.open_api("http://server:2", env).token == ""
    env["CUBE_TOKEN"] = "given"
    assert session.open_api("http://server:2", env).token == "given"


def test_a_login_is_readable_by_its_owner_only_and_keeps_the_others(env: dict[str, str]) -> None:
    path = session.login_file(env)
    session.save_login(path, "http://one", "ann", "1")
    session.save_login(path, "http://two", "bob", "2")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    known = json.loads(path.read_text())
    assert known["current"] == "http://two"
    assert set(known["servers"]) == {"http://one", "http://two"}
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("content", ["not json", "[]", '{"servers": 3}'])
def test_a_broken_login_file_is_named_with_the_remedy(env: dict[str, str], content: str) -> None:
    path = session.login_file(env)
    path.parent.mkdir(parents=True)
    path.write_text(content)
    with pytest.raises(ClientError, match=r"login\.json") as caught:
        session.open_api(env=env)
    assert "cube login" in str(caught.value.resolution)
    session.save_login(path, "http://one", "ann", "1")
    assert session.open_api(env=env).token == "1"


@pytest.mark.parametrize("url", ["ftp://server", "http://", "http:///path"])
def test_what_is_no_url(env: dict[str, str], url: str) -> None:
    with pytest.raises(ClientError, match="not the URL of a server"):
        session.open_api(url, env)
