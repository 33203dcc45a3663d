"""`python -m tests.security.fuzz`: whatever is sent or written, the answer is ours, comes soon, and costs no memory.

HTTP on both stores (a real server, a worker beside it), values and their texts, URLs of stores, durations and the like,
published schemas, whole inputs, and bundles of runs. `make nightly` hunts for half an hour. What is found is printed with the seed
and the smallest input that shows it; the same seed makes the same cases.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import secrets
import sys
from collections.abc import Callable

from click import echo
from tests.security.fuzzers.hunting import Report, hunt


def _codec(seconds: float, seed: int) -> Report:
    from tests.security.fuzzers.codec import Codec

    return hunt(Codec(seed), seconds, seed)


def _schemas(seconds: float, seed: int) -> Report:
    from tests.security.fuzzers.schemas import Schemas

    return hunt(Schemas(seed), seconds, seed)


def _urls(seconds: float, seed: int) -> Report:
    from tests.security.fuzzers.texts import Urls

    return hunt(Urls(), seconds, seed)


def _durations(seconds: float, seed: int) -> Report:
    from tests.security.fuzzers.texts import Durations

    return hunt(Durations(), seconds, seed)


def _parts(seconds: float, seed: int) -> Report:
    from tests.security.fuzzers.parts import Parts

    return hunt(Parts(), seconds, seed)


def _bundles(seconds: float, seed: int) -> Report:
    from tests.security.fuzzers.bundles import Bundles

    target = Bundles()
    try:
        return hunt(target, seconds, seed)
    finally:
        target.close()


def _http_sqlite(seconds: float, seed: int) -> Report:
    from tests.security.fuzzers.http import hunt_http

    return hunt_http("sqlite", seconds, seed)


def _http_postgres(seconds: float, seed: int) -> Report:
    from tests.security.fuzzers.http import hunt_http

    return hunt_http("postgres", seconds, seed)


TARGETS: dict[str, Callable[[float, int], Report]] = {
    "http-sqlite": _http_sqlite, "http-postgres": _http_postgres,
    "codec": _codec, "urls": _urls, "durations": _durations, "schemas": _schemas, "bundles": _bundles,
    "parts": _parts,
}  # fmt: skip


def _alone(name: str, seconds: float, seed: int) -> None:
    """In a process of its own, so that its memory is its own too."""
    report = TARGETS[name](seconds, seed)
    echo(str(report))
    sys.exit(bool(report.findings))


def main() -> None:
    """Hunt in each target for so long; exit with 1 if something was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each target")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--only", default=",".join(TARGETS), help="some of them, by their names")
    given = parser.parse_args()
    echo(f"seed {given.seed}")
    broken = []
    for name in given.only.split(","):
        process = multiprocessing.get_context("spawn").Process(target=_alone, args=(name, given.seconds, given.seed))
        process.start()
        with contextlib.suppress(KeyboardInterrupt):
            process.join()
        broken += [name] if process.exitcode else []
    echo(f"broken: {', '.join(broken)}" if broken else "all well")
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
