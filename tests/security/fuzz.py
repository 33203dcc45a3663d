"""`python -m tests.security.fuzz`: whatever is sent or written, the answer is ours, comes soon, and costs no memory.

HTTP on both stores (a real server, a worker beside it), values and their texts, URLs of stores, durations and the like,
published schemas, whole inputs, bundles of runs, and webhooks. `make nightly` hunts for half an hour. What is found is printed with
the seed and the smallest input that shows it; the same seed makes the same cases. `--only bundles --case "(0, True, [('number',
7)])"` tries one again that was printed, `--only bundles --seed 11 --case 96265` one by its number.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import multiprocessing
import secrets
import sys
import traceback
from collections.abc import Callable, Iterator

from click import echo
from tests.security.fuzzers.hunting import Report, Target, dice_of, hunt, tried


def _codec(seed: int) -> Target:
    from tests.security.fuzzers.codec import Codec

    return Codec(seed)


def _schemas(seed: int) -> Target:
    from tests.security.fuzzers.schemas import Schemas

    return Schemas(seed)


def _urls(seed: int) -> Target:
    from tests.security.fuzzers.texts import Urls

    return Urls()


def _durations(seed: int) -> Target:
    from tests.security.fuzzers.texts import Durations

    return Durations()


def _parts(seed: int) -> Target:
    from tests.security.fuzzers.parts import Parts

    return Parts()


def _bundles(seed: int) -> Target:
    from tests.security.fuzzers.bundles import Bundles

    return Bundles()


def _webhooks(seed: int) -> Target:
    from tests.security.fuzzers.webhooks import Webhooks

    return Webhooks()


ALONE: dict[str, Callable[[int], Target]] = {
    "codec": _codec, "urls": _urls, "durations": _durations, "schemas": _schemas, "bundles": _bundles, "parts": _parts,
    "webhooks": _webhooks,
}  # fmt: skip


def _hunted(name: str, seconds: float, seed: int) -> Report:
    with _made(name, seed) as target:
        return hunt(target, seconds, seed)


@contextlib.contextmanager
def _made(name: str, seed: int) -> Iterator[Target]:
    target = ALONE[name](seed)
    try:
        yield target
    finally:
        getattr(target, "close", lambda: None)()


def _http(kind: str, seconds: float, seed: int, requests: int | None = None) -> Report:
    from tests.security.fuzzers.http import hunt_http

    return hunt_http(kind, seconds, seed, requests=requests)


HTTP = {"http-sqlite": functools.partial(_http, "sqlite"), "http-postgres": functools.partial(_http, "postgres")}
TARGETS: dict[str, Callable[[float, int], Report]] = {
    **HTTP,
    **{name: functools.partial(_hunted, name) for name in ALONE},
}  # fmt: skip


def again(name: str, text: str, seed: int) -> bool:
    """Try one case again, given by its number or as it was printed, and say what became of it; was all well?"""
    with _made(name, seed) as target:
        told = ast.literal_eval(text)
        case = target.make(dice_of(seed, name, told)) if isinstance(told, int) else told
        error, spent = tried(target, case)
        echo(f"{name}: {case!r}")
        echo(
            f"{', '.join(target.seen)} in {spent:.3f} s"
            if error is None
            else "".join(traceback.format_exception(error))
        )
        return error is None


def _alone(name: str, seconds: float, seed: int, requests: int | None) -> None:
    """In a process of its own, so that its memory is its own too."""
    report = HTTP[name](seconds, seed, requests) if name in HTTP and requests else TARGETS[name](seconds, seed)
    echo(str(report))
    if requests:
        for route, counts in report.table.items():
            echo(
                f"  {sum(counts.values()):6} {route}: "
                + ", ".join(f"{count} x {status}" for status, count in counts.items())
            )
    sys.exit(bool(report.findings))


def main() -> None:
    """Hunt in each target for so long; exit with 1 if something was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each target")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--only", default=",".join(TARGETS), help="some of them, by their names")
    parser.add_argument(
        "--requests", type=int, help="so many to each HTTP server, with a table of the answers of each route"
    )
    parser.add_argument("--case", help="one case alone, by its number or as it was printed; with --only and --seed")
    given = parser.parse_args()
    echo(f"seed {given.seed}")
    if given.case is not None:
        if given.only not in ALONE:
            parser.error(f"--case: say with --only which of {', '.join(ALONE)} it is a case of")
        sys.exit(not again(given.only, given.case, given.seed))
    broken = []
    for name in given.only.split(","):
        process = multiprocessing.get_context("spawn").Process(
            target=_alone, args=(name, given.seconds, given.seed, given.requests)
        )
        process.start()
        with contextlib.suppress(KeyboardInterrupt):
            process.join()
        broken += [name] if process.exitcode else []
    echo(f"broken: {', '.join(broken)}" if broken else "all well")
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
