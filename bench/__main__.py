"""`python -m bench`: Cube Studio, beside the peers that are installed, in one table."""

from __future__ import annotations

import argparse
import json
import os
import platform as machine
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import ours, report
from bench.peers import PEERS, installed
from bench.platform import ROOT, Platform
from bench.system import Failed, Sizes, measure
from bench.tree import Tree

RESULTS = ROOT / ".bench"
QUICK = Sizes(w1=5, w2=2, w3=3, w4_rounds=1)
FULL = Sizes(w1=15, w2=5, w3=5, w4_rounds=3, quiet_s=30)
PEERS_QUICK = Sizes(w1=3, w2=2, w3=2, w4=20, settle_s=5, idle_s=15, requests=100)
PEERS_FULL = Sizes(w1=5, w2=3, w3=3, quiet_s=30)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__, allow_abbrev=False)
    size = parser.add_mutually_exclusive_group()
    size.add_argument(
        "--quick", action="store_true", help="the default: Cube Studio in two minutes, each peer in two to five"
    )
    size.add_argument("--full", action="store_true", help="more rounds, runs of 10,000 tasks, a million runs")
    parser.add_argument(
        "--peers",
        default=os.environ.get("PEERS", ""),
        help=f"of {','.join(PEERS)}: installed where missing (needs a package index); default: those installed",
    )
    parser.add_argument(
        "--quiet", type=float, metavar="S", help="wait up to S seconds, before each part, for others' load to go away"
    )
    parser.add_argument("--no-peers", action="store_true", help="Cube Studio alone")
    parser.add_argument("--only-peers", action="store_true", help="with the figures of Cube Studio's last run")
    return parser.parse_args()


def chosen(args: argparse.Namespace) -> list[str]:
    if args.no_peers:
        return []
    if not args.peers:
        return [name for name in PEERS if installed(name)]
    names = [name.strip() for name in args.peers.split(",") if name.strip()]
    if unknown := [name for name in names if name not in PEERS]:
        raise SystemExit(f"bench: {unknown[0]} is not one of {', '.join(PEERS)}")
    return names


def main() -> int:
    args = arguments()
    signal.signal(signal.SIGTERM, lambda signum, frame: sys.exit(143))  # so that nothing is left running
    peers = chosen(args)
    RESULTS.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="cube-bench-"))
    tree = Tree(folder)
    last = RESULTS / "last.json"
    results: dict[str, Any] = json.loads(last.read_text()) if args.only_peers and last.exists() else {"systems": {}}
    results |= {"size": "full" if args.full else "quick", "at": time.strftime("%FT%TZ", time.gmtime())}
    results["machine"] = {"cpus": os.cpu_count(), "python": machine.python_version(), "system": machine.system()}
    try:
        if not args.only_peers:
            results["systems"]["cube"] = measure_ours(tree, folder, sizes(args, QUICK, FULL), full=args.full)
            save(results)
        for name in peers:
            results["systems"].pop(name, None)
            system = PEERS[name](tree, folder)
            try:
                results["systems"][name] = measure(system, sizes(args, PEERS_QUICK, PEERS_FULL), said(name))
            except (Failed, RuntimeError, OSError) as error:
                print(f"bench: {name}: {error}", file=sys.stderr)
                results["systems"][name] = {"version": system.version, "failed": str(error)[:500]}
                shutil.copytree(tree.logs, RESULTS / f"{name}-logs", dirs_exist_ok=True, ignore=_not_a_log)
            finally:
                system.stop()
            save(results)
    finally:
        tree.stop()
        shutil.rmtree(folder, ignore_errors=True)
    print(report.table(results))
    print(f"\n{last.relative_to(Path.cwd()) if last.is_relative_to(Path.cwd()) else last}")
    return 0


def sizes(args: argparse.Namespace, quick: Sizes, full: Sizes) -> Sizes:
    chosen = full if args.full else quick
    return chosen if args.quiet is None else replace(chosen, quiet_s=args.quiet)


def measure_ours(tree: Tree, folder: Path, sizes: Sizes, *, full: bool) -> dict[str, Any]:
    system = Platform(tree, folder)
    try:
        found = measure(system, sizes, said("cube"))
        return found | ours.measure(
            system,
            sizes,
            submits=400 if full else 200,
            fans=(10, 100, 1000, 10_000) if full else (10, 100, 1000),
            listed=100_000,
            many=1_000_000 if full else 0,
            say=said("cube"),
        )
    finally:
        system.stop()


def said(system: str) -> Any:
    def say(key: str, value: Any) -> None:
        print(f"{time.strftime('%T')} {system} {key}: {json.dumps(value)}", flush=True)

    return say


def save(results: dict[str, Any]) -> None:
    text = json.dumps(results, indent=1)
    (RESULTS / "last.json").write_text(text)
    (RESULTS / f"{results['at'].replace(':', '')}.json").write_text(text)


def _not_a_log(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if not name.endswith(".log")}


if __name__ == "__main__":
    sys.exit(main())
