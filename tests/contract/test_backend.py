"""The contract of `ExecutionBackend`, over every backend."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from myapp.backends.fake.backend import FakeBackend
from myapp.backends.fake.misbehaving import FlakyBackend, LyingBackend
from myapp.backends.local import sandbox
from myapp.domain.ports import AttemptKey, Cause, Handle, IdentityConflict, ObservedState, Transient
from tests.contract.lab import Lab, eventually, local_lab, plan_of

S = ObservedState
KINDS = ("local-bwrap", "local-none", "fake")


def needs_sandbox() -> None:
    reason = sandbox.probe().reason
    if reason:
        pytest.skip(reason)


@pytest.fixture(params=KINDS)
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    if request.param == "fake":
        lab = Lab(FakeBackend(plan_of), tmp_path)
    else:
        mode = request.param.removeprefix("local-")
        if mode == "bwrap":
            needs_sandbox()
        lab = local_lab(tmp_path, mode)
    yield lab
    lab.close()


def test_inert_until_fired(lab: Lab) -> None:
    key, handle = lab.arm("succeed")
    seen = lab.backend.observe(key, handle)
    assert (seen.state, [r.state for r in seen.ranks]) == (S.INERT, [S.INERT])
    assert lab.started(key) == 0
    lab.backend.fire(key, handle)
    done = lab.end(key, handle)
    assert (done.state, done.ranks[0].exit_code, done.ranks[0].cause) == (S.SUCCEEDED, 0, None)
    assert lab.started(key) == 1


def test_handle_is_json(lab: Lab) -> None:
    key, handle = lab.arm("succeed")
    again = Handle(handle.uid, json.loads(json.dumps(handle.data)))
    assert lab.backend.observe(key, again).state is S.INERT


def test_arm_adopts_the_same_attempt(lab: Lab) -> None:
    key = lab.key()
    spec = lab.spec("succeed")
    first, second = lab.backend.arm(spec, key), lab.backend.arm(spec, key)
    assert first.uid == second.uid
    lab.backend.fire(key, second)
    lab.end(key, first)
    assert lab.backend.arm(spec, key).uid == first.uid, "an ended one is adopted as well, not run again"
    assert lab.started(key) == 1


@pytest.mark.parametrize("change", ["attempt", "sha256"])
def test_arm_refuses_a_foreign_object(lab: Lab, change: str) -> None:
    key, handle = lab.arm("forever")
    spec = lab.spec("forever")
    other = AttemptKey(key.project, key.attempt_id + 1000, key.object_name) if change == "attempt" else key
    with pytest.raises(IdentityConflict):
        lab.backend.arm(replace(spec, sha256="b" * 64) if change == "sha256" else spec, other)
    assert lab.backend.observe(key, handle).state is S.INERT


def test_concurrent_arms_make_one_object(lab: Lab) -> None:
    key, spec = lab.key(), lab.spec("succeed", "succeed")
    with ThreadPoolExecutor(8) as pool:
        handles = list(pool.map(lambda _: lab.backend.arm(spec, key), range(8)))
    assert len({h.uid for h in handles}) == 1
    for handle in handles:
        lab.backend.fire(key, handle)
    assert lab.end(key, handles[0]).state is S.SUCCEEDED
    assert lab.started(key) == (2 if lab.real else 1)


def test_fire_twice_runs_once(lab: Lab) -> None:
    key, handle = lab.start("succeed")
    lab.backend.fire(key, handle)
    lab.end(key, handle)
    lab.backend.fire(key, handle)
    assert lab.started(key) == 1
    assert lab.end(key, handle).state is S.SUCCEEDED


def test_verbs_leave_another_uid_alone(lab: Lab) -> None:
    key, handle = lab.arm("forever")
    stranger = Handle("00000000-0000-4000-8000-000000000000", {})
    lab.backend.fire(key, stranger)
    lab.backend.stop(key, stranger, 0)
    lab.backend.reap(key, stranger)
    assert lab.backend.observe(key, handle).state is S.INERT
    assert lab.backend.observe(key, stranger).state is S.ABSENT


def test_exit_code(lab: Lab) -> None:
    key, handle = lab.start("exit3")
    done = lab.end(key, handle)
    rank = done.ranks[0]
    assert (done.state, rank.state, rank.exit_code, rank.cause) == (S.FAILED, S.FAILED, 3, Cause.EXIT_NONZERO)
    assert "exit code 3" in rank.message
    assert "exit code 3" in done.message
    assert rank.started_at is not None
    assert rank.finished_at is not None
    assert rank.started_at <= rank.finished_at


@pytest.mark.parametrize(("job", "grace", "code"), [("forever", 60, 143), ("stubborn", 0, 137), ("stubborn", 1, 137)])
def test_stop(lab: Lab, job: str, grace: int, code: int) -> None:
    key, handle = lab.start(job)
    eventually(lambda: lab.started(key))
    assert lab.backend.observe(key, handle).state is S.RUNNING
    lab.backend.stop(key, handle, grace)
    done = lab.end(key, handle)
    assert (done.state, done.ranks[0].cause, done.ranks[0].exit_code) == (S.FAILED, Cause.CANCELLED, code)


def test_stop_again_with_less_grace(lab: Lab) -> None:
    key, handle = lab.start("stubborn")
    eventually(lambda: lab.started(key))
    lab.backend.stop(key, handle, 3600)
    assert lab.until(key, handle, S.ENDING).state is S.ENDING
    lab.backend.stop(key, handle, 0)
    assert lab.end(key, handle).ranks[0].cause is Cause.CANCELLED


def test_stop_before_fire(lab: Lab) -> None:
    key, handle = lab.arm("succeed")
    lab.backend.stop(key, handle, 5)
    lab.backend.fire(key, handle)
    done = lab.end(key, handle)
    assert (done.state, done.ranks[0].cause) == (S.FAILED, Cause.CANCELLED)
    assert lab.started(key) == 0


@pytest.mark.parametrize("fired", [False, True])
def test_killed_from_outside_is_absent(lab: Lab, fired: bool) -> None:
    key, handle = lab.start("forever") if fired else lab.arm("forever")
    if fired:
        eventually(lambda: lab.started(key))
    lab.kill_shim(key, handle)
    lab.until(key, handle, S.ABSENT)
    before = lab.started(key)
    assert lab.backend.arm(lab.spec("forever"), key).uid == handle.uid
    lab.backend.fire(key, handle)
    assert lab.backend.observe(key, handle).state is S.ABSENT, "a lost one is never started again under its name"
    assert lab.started(key) == before


def test_reap_and_everything_after_it(lab: Lab) -> None:
    key, handle = lab.start("succeed")
    lab.end(key, handle)
    for _ in range(2):
        lab.backend.reap(key, handle)
        assert lab.backend.observe(key, handle).state is S.ABSENT
    lab.backend.fire(key, handle)
    lab.backend.stop(key, handle, 0)
    assert lab.backend.read_log(key, handle, 0, 0, 100).eof
    assert lab.backend.collect(key, handle).problems
    assert list(lab.backend.list_owned()) == []
    assert lab.started(key) == (1 if lab.real else 0)


def test_list_owned_and_destroy(lab: Lab) -> None:
    key, handle = lab.start("forever")
    other, other_handle = lab.arm("forever")
    eventually(lambda: lab.started(key))
    owned = {o.object_name: o for o in lab.backend.list_owned()}
    assert {(o.uid, o.attempt_id) for o in owned.values()} == {
        (handle.uid, key.attempt_id), (other_handle.uid, other.attempt_id),
    }
    lab.backend.destroy(replace(owned[key.object_name], uid="another"))
    assert lab.backend.observe(key, handle).state is S.RUNNING
    for _ in range(2):
        lab.backend.destroy(owned[key.object_name])
        assert lab.backend.observe(key, handle).state is S.ABSENT
    assert [o.object_name for o in lab.backend.list_owned()] == [other.object_name]


def test_log_by_offset(lab: Lab) -> None:
    key, handle = lab.arm("succeed")
    part = lab.backend.read_log(key, handle, 0, 0, 100)
    assert (part.data, part.eof) == (b"", False)
    lab.backend.fire(key, handle)
    lab.end(key, handle)
    text, offset, eof = b"", 0, False
    while not eof:
        part = lab.backend.read_log(key, handle, 0, offset, 4)
        text, offset, eof = text + part.data, part.next_offset, part.eof
    assert text == b"hello\n"
    assert lab.backend.read_log(key, handle, 7, 0, 10).eof


@pytest.mark.parametrize(
    ("jobs", "roles", "state", "broken", "complete"),
    [
        (("succeed", "forever"), ("worker", "ps"), S.RUNNING, False, True),
        (("exit3", "forever"), ("worker", "worker"), S.RUNNING, True, False),
        (("forever", "exit3"), ("worker", "ps"), S.RUNNING, True, False),
        (("succeed", "exit3"), ("worker", "ps"), S.SUCCEEDED, False, False),
        (("succeed", "exit3"), ("worker", "worker"), S.FAILED, False, False),
    ],
)
def test_gang(
    lab: Lab, jobs: tuple[str, ...], roles: tuple[str, ...], state: ObservedState, broken: bool, complete: bool
) -> None:
    key, handle = lab.start(*jobs, roles=roles)
    def settled() -> bool:
        seen = lab.backend.observe(key, handle)
        return (seen.state, seen.broken, seen.complete) == (state, broken, complete)

    eventually(settled, f"{state} broken={broken} complete={complete}")
    if state is S.RUNNING:
        lab.backend.stop(key, handle, 0)
        done = lab.end(key, handle)
        assert done.state is (S.SUCCEEDED if complete else S.FAILED)
        if broken:
            assert "exit code 3" in done.message, "the rank that began it is named, not the one we stopped"


def test_addresses_are_stable_and_do_not_clash(lab: Lab) -> None:
    one, two = lab.key(), lab.key()
    first = lab.backend.addresses("a", one, {"worker": 2}, ("rendezvous", "extra"))
    second = lab.backend.addresses("b", two, {"ps": 1}, ("rendezvous",))
    assert first == lab.backend.addresses("a", one, {"worker": 2}, ("rendezvous", "extra"))
    assert first.hosts == {"worker": ["127.0.0.1", "127.0.0.1"]}
    ports = [*first.ports.values(), *second.ports.values()]
    assert len(set(ports)) == 3
    assert all(1024 < port < 65536 for port in ports)


def test_capacity(lab: Lab) -> None:
    amounts = {c.resource: c.amount for c in lab.backend.capacity() if c.flavor == "local"}
    assert set(amounts) == {"cpu", "memory", "gpu"}
    assert amounts["cpu"] > 0
    assert amounts["memory"] > 0


def insist(call: object, *arguments: object) -> object:
    """Repeat a verb until it is not refused, as the engine does."""
    while True:
        try:
            return call(*arguments)  # type: ignore[operator]
        except Transient:
            continue


@pytest.mark.parametrize("seed", range(10))
def test_flaky_backend_runs_each_job_once(tmp_path: Path, seed: int) -> None:
    backend = FlakyBackend(rate=0.6, seed=seed)
    lab = Lab(backend, tmp_path)
    key, spec = lab.key(), lab.spec("succeed")
    handle = insist(backend.arm, spec, key)
    assert isinstance(handle, Handle)
    insist(backend.fire, key, handle)
    lab.end(key, handle)
    assert backend.starts(key.object_name) == 1
    insist(backend.reap, key, handle)
    assert list(backend.list_owned()) == []


def test_lying_backend_says_unknown_before_the_truth(tmp_path: Path) -> None:
    lab = Lab(LyingBackend(storm=5), tmp_path)
    key, handle = lab.start("succeed")
    states = [lab.backend.observe(key, handle).state for _ in range(6)]
    assert states == [S.UNKNOWN] * 5 + [S.SUCCEEDED]


def test_fake_failures_in_order(tmp_path: Path) -> None:
    backend = FakeBackend()
    lab = Lab(backend, tmp_path)
    backend.fail("arm", Transient("one"), Transient("two"))
    key, spec = lab.key(), lab.spec("succeed")
    for text in ("one", "two"):
        with pytest.raises(Transient, match=text):
            backend.arm(spec, key)
    backend.fail("observe", Transient("down"))
    handle = backend.arm(spec, key)
    assert backend.observe(key, handle).state is S.UNKNOWN
    assert backend.observe(key, handle).state is S.INERT
