"""Where the processor's time goes: `python benchmarks/profile_steps.py [--alone] [--writer] [--top N] [--sort BY]`.

Profiles the thread of the event loop, or with --writer the thread that writes the file (cProfile sees one thread at a
time). The profiler itself makes everything two to four times slower: read shares, not seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import tempfile
import threading
from pathlib import Path

from measuring import HERE
from rates import rate_in

WRITER = "holdfast-writer"


def main() -> None:
    parser = argparse.ArgumentParser(description="Profile 500 runs of 20 steps (or one run of 2,000 steps).")
    parser.add_argument("--alone", action="store_true", help="one run of 2,000 steps")
    parser.add_argument("--writer", action="store_true", help="the thread that writes, not the loop")
    parser.add_argument("--top", type=int, default=15)
    parser.add_argument("--sort", default="tottime", choices=["tottime", "cumtime", "ncalls"])
    arguments = parser.parse_args()
    runs, steps = (1, 2000) if arguments.alone else (500, 20)
    profile = cProfile.Profile()
    with tempfile.TemporaryDirectory(dir=HERE, prefix=".bench-", ignore_cleanup_errors=True) as folder:
        if arguments.writer:
            profile_thread(WRITER, profile)
            rate = asyncio.run(rate_in(Path(folder).resolve(), runs, steps))
        else:
            rate = profile.runcall(asyncio.run, rate_in(Path(folder).resolve(), runs, steps))
    print(f"{runs} x {steps} steps: {rate['rate']:,.0f} steps/s under the profiler")
    pstats.Stats(profile).strip_dirs().sort_stats(arguments.sort).print_stats(arguments.top)


def profile_thread(name: str, profile: cProfile.Profile) -> None:
    """Profile what the thread of this name runs."""
    run = threading.Thread.run

    def profiled(thread: threading.Thread) -> None:
        if thread.name == name:
            profile.runcall(run, thread)
        else:
            run(thread)

    threading.Thread.run = profiled  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
