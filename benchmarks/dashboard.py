"""21. The dashboard in a browser, beside the same histories in no view at all: fetched and parsed, with nothing drawn."""

from __future__ import annotations

import json
import shutil
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from statistics import median
from typing import Any

from measuring import HERE, Bench, Row, finished, percentile, spread

sys.path.append(str(HERE.parent))  # the agents, the server and the visitors of the tests

from tests.page.browser import CHROMIUM, Visitor, chromium
from tests.page.long_agents import Pace, fill
from tests.page.scene import Scene, bare, served

STATIC = HERE.parent / "src" / "holdfast" / "http" / "static"
FIRST, IN_ALL, ELEMENTS, REQUESTS = 60_000, 120_000, 2_500, 3
PAINT_MS, LONG_MS, LONGER_MS, SCRIPT_MS = 300, 1_000, 1_500, 8
HEAP_MB, SHARE, DRAWINGS, RATE, HOUR_S = 80, 0.30, 10, 50, 3_600
EMPTY = "/static/js/first.js"  # a page of this server on which no script of ours runs
ROW, EVENT, RUN, FOLDED = ".tl-rows [role=treeitem]", ".ev-row[data-seq]", "tr[data-row]", "svg.density"
PANEL = "main .panel"
VIEWS = {
    "/runs": RUN, "/runs/few": ROW, "/runs/few/journal": EVENT, "/runs/few/data": ".data-block", "/runs/few/audit": ".deeds",
    "/approvals": ".inbox", "/agents": PANEL, "/schedules": PANEL, "/audit": ".deed", "/conversations": PANEL, "/fleet": PANEL,
    "/compare?a=few&b=few": PANEL,
}  # fmt: skip
FRAME = {"me", "runs?limit=1", "approvals?mine=true&limit=100"}  # what the frame asks for, once for all views
# When an element that can be seen was drawn, by the clock that begins with the navigation.
WATCH = """
(wanted) => {
  const look = () => {
    if (window.drawnAt !== undefined || !document.querySelector(wanted)?.getClientRects().length) return;
    window.drawnAt = null;
    requestAnimationFrame(() => setTimeout(() => { window.drawnAt = performance.now(); }));
  };
  new MutationObserver(look).observe(document, { childList: true, subtree: true, attributes: true });
}
"""
# All events of a run, as a program has them that draws nothing.
PLAIN = """
async (id) => {
  const began = performance.now(), all = [];
  for (let after = 0; ; ) {
    const { events, next } = await (await fetch(`/api/runs/${id}/events?limit=1000&after=${after}`)).json();
    all.push(...events);
    if (events.length < 1000) break;
    after = next;
  }
  window.kept = all;
  return performance.now() - began;
}
"""
FOLLOWED = """
({ id, after }) => {
  window.kept = [];
  const source = new EventSource(`/api/runs/${id}/events?after=${after}`);
  source.onmessage = (message) => window.kept.push(JSON.parse(message.data));
}
"""
# The number behind the last event of a run that the page has: it came by the stream, or was read before that began.
HEARD = """
window.heard = 0;
window.EventSource = class extends EventSource {
  constructor(url) {
    super(url);
    if (!String(url).includes("/runs/")) return;
    window.heard = Number(new URL(url).searchParams.get("after"));
    this.addEventListener("message", (message) => { window.heard = Number(message.lastEventId); });
  }
};
"""
DRAWN = """
() => {
  window.drawings = [];
  const watch = new MutationObserver(() => window.drawings.push(performance.now()));
  watch.observe(document.querySelector("main"), { childList: true, subtree: true });
}
"""
SENT = """
() => [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
  .filter((each) => !each.name.includes("/api/")).reduce((sum, each) => sum + each.encodedBodySize, 0)
"""


class Look:
    """A page of somebody who has never been here, and what the browser tells of it."""

    def __init__(self, browser: Any, place: Scene, path: str, wanted: str = "") -> None:
        self._visitor = Visitor(browser, place.address, place.tokens["ana"])
        self.page = self._visitor.page
        self.asked: list[str] = []  # of the server; streams are not among them
        self.page.on("request", lambda request: self._noted(request.resource_type, request.url))
        self._told = self._visitor.context.new_cdp_session(self.page)
        self._told.send("Performance.enable", {"timeDomain": "threadTicks"})
        if wanted:
            self.page.add_init_script(f"({WATCH})({wanted!r})")
        self.page.goto(path)
        if wanted:
            self.page.wait_for_function("() => window.drawnAt", timeout=120_000)

    def _noted(self, kind: str, url: str) -> None:
        if kind == "fetch":
            self.asked.append(url.partition("/api/")[2])

    def drawn_ms(self) -> float:
        return float(self.page.evaluate("window.drawnAt"))

    def elements(self) -> int:
        return int(self.page.evaluate("document.querySelectorAll('*').length"))

    def sent(self) -> int:
        """Bytes of the document, its styles and its scripts as they came."""
        return int(self.page.evaluate(SENT))

    def heap_mb(self) -> float:
        """What is held when everything was let go of that can be."""
        for _ in range(2):
            self._told.send("HeapProfiler.collectGarbage")
        told = self._told.send("Performance.getMetrics")["metrics"]
        return next(float(each["value"]) for each in told if each["name"] == "JSHeapUsedSize") / 1e6

    def leave(self) -> None:
        self._visitor.leave()


@contextmanager
def looking(browser: Any, place: Scene, path: str, wanted: str = "") -> Iterator[Look]:
    look = Look(browser, place, path, wanted)
    try:
        yield look
    finally:
        look.leave()


def measure(bench: Bench) -> list[Row]:
    if shutil.which(CHROMIUM) is None:
        return [Row(21, "the dashboard", "not measured: apt-get install chromium")]
    long, longer = bench.size(10_000, 6_000), bench.size(100_000, 12_000)
    with bench.place() as folder:
        runs = {"few": ("long", 40), "wide": ("wide", 4_900), "long": ("long", long), "longer": ("long", longer)}
        finished(fill(f"sqlite:{folder / 'holdfast.db'}", waiting=bench.size(10_000, 500), **runs))
        with bare(folder) as place, chromium() as browser:
            return [
                *of_sizes(browser, place),
                *of_first_rows(browser, place, bench.size(5, 1)),
                *of_long_runs(browser, place, bench.size(5, 1), long, longer),
                *of_scrolling(browser, place, bench.size(150, 20)),
                *of_living(browser, place, bench.size(20, 3), bench.size(HOUR_S, 20)),
            ]


# Sizes, elements, requests


def of_sizes(browser: Any, place: Scene) -> list[Row]:
    names = [str(each.relative_to(STATIC)) for each in STATIC.rglob("*") if each.is_file()]
    in_all = sum(packed(f"{place.address}/static/{name}") for name in names)
    found = {}
    for path, wanted in {"/runs": RUN, "/runs/few": ROW}.items():
        with looking(browser, place, path, wanted) as look:
            found[path] = look.sent()
    return [
        Row(21, "the dashboard in all: HTML, CSS and JavaScript as gzip", f"{in_all / 1000:.1f} kB", "",
            f"<= {IN_ALL // 1000} kB", in_all <= IN_ALL),
        Row(21, "what comes before the list of runs is there", f"{found['/runs'] / 1000:.1f} kB", "",
            f"<= {FIRST // 1000} kB", found["/runs"] <= FIRST),
        Row(21, "what comes before a run is there", f"{found['/runs/few'] / 1000:.1f} kB"),
    ]  # fmt: skip


def packed(url: str) -> int:
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept-Encoding": "gzip"})) as answer:
        return len(answer.read())


def of_first_rows(browser: Any, place: Scene, rounds: int) -> list[Row]:
    """Each view by somebody with an empty cache; then how many elements it has, and what it has asked the server for."""
    drawn: dict[str, list[float]] = {path: [] for path in VIEWS}
    elements, asked = {}, {}
    for _ in range(rounds):
        for path, wanted in VIEWS.items():
            with looking(browser, place, path, wanted) as look:
                drawn[path].append(look.drawn_ms())
                look.page.wait_for_timeout(500)
                elements[path] = look.elements()
                asked[path] = len(set(look.asked) - FRAME)
    slowest = max(drawn, key=lambda path: median(drawn[path]))
    most, fullest = max(asked, key=lambda path: asked[path]), max(elements, key=lambda path: elements[path])
    return [
        Row(21, f"first rows of {len(VIEWS)} views, with an empty cache: the median one",
            spread([median(each) for each in drawn.values()], unit=" ms")),
        Row(21, f"the slowest of them, {slowest}", spread(drawn[slowest], unit=" ms"), "", f"< {PAINT_MS} ms",
            median(drawn[slowest]) < PAINT_MS),
        Row(21, f"requests of a view beside those of the frame, at most ({most})", f"{asked[most]} and a stream", "",
            f"<= {REQUESTS} and a stream", asked[most] <= REQUESTS),
        Row(21, f"elements of a view, at most ({fullest})", f"{elements[fullest]:,}", "", f"<= {ELEMENTS:,}",
            elements[fullest] <= ELEMENTS),
    ]  # fmt: skip


# Long runs


def of_long_runs(browser: Any, place: Scene, rounds: int, long: int, longer: int) -> list[Row]:
    rows = []
    for run, events, limit in (("long", long, LONG_MS), ("longer", longer, LONGER_MS)):
        drawn, folded, plain = [], [], []
        for _ in range(rounds):
            restart(place)  # so that it has folded nothing yet
            with looking(browser, place, f"/runs/{run}", ROW) as look:
                drawn.append(look.drawn_ms())
                look.page.wait_for_selector(FOLDED, timeout=120_000)
                folded.append(float(look.page.evaluate("performance.now()")))
                heap = look.heap_mb()
            with looking(browser, place, EMPTY) as look:
                plain.append(float(look.page.evaluate(PLAIN, run)))
                plain_heap = look.heap_mb()
        rows += [
            Row(21, f"a run of {events:,} events: from the navigation to its first rows, by a server that has just begun",
                spread(drawn, unit=" ms"), f"{median(drawn) / median(plain):.2f} x plain", f"< {limit:,} ms",
                median(drawn) < limit),
            Row(21, "the same until all its calls are folded", f"{spread(folded, unit=' ms')}, {heap:.0f} MB"),
            Row(21, "the same events in no view: fetched and parsed", f"{spread(plain, unit=' ms')}, {plain_heap:.0f} MB"),
        ]  # fmt: skip
    return rows


def restart(place: Scene) -> None:
    server = place.processes.pop()
    server.terminate()
    server.wait()
    place.serve(int(place.address.rpartition(":")[2]))


# Scrolling


def of_scrolling(browser: Any, place: Scene, wheels: int) -> list[Row]:
    rows = []
    for what, path, wanted in (
        ("events of a journal", "/runs/long/journal", EVENT),
        ("runs in the list", "/runs", RUN),
        ("rows of a timeline, one for each of 4,900 steps", "/runs/wide", ROW),
    ):
        with looking(browser, place, path, wanted) as look:
            look.page.wait_for_timeout(500)
            found = frames(browser, look, wheels)
            elements = look.elements()
        p95 = percentile(found, 95)
        rows.append(
            Row(21, f"script in a frame while one scrolls: {what}",
                f"median {median(found):.1f} ms, p95 {p95:.1f} ms, n={len(found)}; {elements:,} elements", "",
                f"p95 < {SCRIPT_MS} ms", p95 < SCRIPT_MS and elements <= ELEMENTS)
        )  # fmt: skip
    return rows


def frames(browser: Any, look: Look, wheels: int) -> list[float]:
    """Milliseconds of the processor for scripts in each frame that had any, while a wheel turns."""
    look.page.mouse.move(500, 600)
    browser.start_tracing(page=look.page, categories=["-*", "devtools.timeline"])
    for _ in range(wheels):
        look.page.mouse.wheel(0, 500)
        look.page.wait_for_timeout(30)
    told = json.loads(browser.stop_tracing())["traceEvents"]
    calls = [
        each for each in told if each["name"] == "FunctionCall" and "/static/" in each["args"]["data"].get("url", "")
    ]
    (main,) = {(each["pid"], each["tid"]) for each in calls}
    ends = sorted(
        each["ts"] for each in told
        if (each["name"], each["ph"], each["pid"], each["tid"]) == ("AnimationFrame", "e", *main)
    )  # fmt: skip
    found = []
    for begin, end in pairwise([0, *ends]):
        inside = [each for each in calls if begin <= each["ts"] < end]
        outer = [one for one in inside if not any(holds(other, one) for other in inside)]
        if outer:
            found.append(sum(each.get("tdur", each["dur"]) for each in outer) / 1000)
    return found


def holds(outer: dict[str, Any], inner: dict[str, Any]) -> bool:
    return (
        outer is not inner and outer["ts"] <= inner["ts"] and inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"]
    )


# A run that goes on


def of_living(browser: Any, place: Scene, seconds: int, hour: int) -> list[Row]:
    pace = Pace(place.folder)
    place.worker("fast", "long_agents.py")
    place.act(lambda hf: served(hf, "paced"))
    rows = []
    for made in (0, 4_000, 20_000):
        run = f"living-{made}"
        begin(place, pace, run, made)
        drawn, share = watched(browser, place, pace, run, seconds)
        _, plain = watched(browser, place, pace, run, seconds, plain=True)
        rows.append(
            Row(21, f"{RATE} events a second on a run that has {made:,}: the processor of the page, drawings in a second",
                f"{share:.0%} of a core, {median(drawn):.0f} drawings (at most {max(drawn)})", f"{plain:.0%} in no view",
                f"< {SHARE:.0%}, <= {DRAWINGS}", share < SHARE and max(drawn) <= DRAWINGS)
        )  # fmt: skip
        place.act(lambda hf, run=run: hf.get(run).cancel(by="bench"))
    begin(place, pace, "hour", 0)
    heaps, seen = an_hour(browser, place, pace, hour)
    with looking(browser, place, EMPTY) as look:
        look.page.evaluate(PLAIN, "hour")
        plain_mb = look.heap_mb()
    rows.append(
        Row(21, f"memory after {hour:,} s with {RATE} events in each, in which only its clock was quicker",
            f"{heaps[-1]:.1f} MB of scripts, at most {max(heaps):.1f} MB; {seen:,} events", f"{plain_mb:.0f} MB in no view",
            f"< {HEAP_MB} MB", max(heaps) < HEAP_MB)
    )  # fmt: skip
    return rows


def begin(place: Scene, pace: Pace, run: str, made: int) -> None:
    """Start a run and wait until it has made so many steps."""
    pace.up_to(made)
    place.act(lambda hf: hf.start("paced", 10**9, id=run))
    while events_of(place, run) < made:
        time.sleep(0.2)


def events_of(place: Scene, run: str) -> int:
    headers = {"Authorization": f"Bearer {place.tokens['ana']}"}
    with urllib.request.urlopen(urllib.request.Request(f"{place.address}/api/runs/{run}", headers=headers)) as answer:
        return int(json.load(answer)["run"]["events"])


def watched(
    browser: Any, place: Scene, pace: Pace, run: str, seconds: int, *, plain: bool = False
) -> tuple[list[int], float]:
    """Drawings in each second, and the share of a core that the page takes, while events come."""
    path, wanted = (EMPTY, "") if plain else (f"/runs/{run}", ".run-title")
    told = browser.new_browser_cdp_session()

    def worked() -> dict[int, float]:
        processes = told.send("SystemInfo.getProcessInfo")["processInfo"]
        return {each["id"]: each["cpuTime"] for each in processes if each["type"] == "renderer"}

    with looking(browser, place, path, wanted) as look:
        if plain:
            look.page.evaluate(FOLLOWED, {"id": run, "after": events_of(place, run)})
        else:
            look.page.evaluate(DRAWN)
        pace.at(RATE)
        look.page.wait_for_timeout(2_000)
        began, before = time.monotonic(), worked()
        first = look.page.evaluate("performance.now()")
        look.page.wait_for_timeout(seconds * 1_000)
        after, took = worked(), time.monotonic() - began
        moments = [] if plain else look.page.evaluate("window.drawings")
        pace.hold()
    share = max(after[each] - before.get(each, 0) for each in after) / took
    return [
        sum(first + nth * 1e3 <= each < first + (nth + 1) * 1e3 for each in moments) for nth in range(seconds)
    ], share


def an_hour(browser: Any, place: Scene, pace: Pace, hour: int) -> tuple[list[float], int]:
    """Follow a run whose events come as fast as they can, ten seconds of them and then ten seconds of the page's clock."""
    piece, heaps = 10, []
    with looking(browser, place, EMPTY) as look:
        look.page.add_init_script(HEARD)
        look.page.clock.install()
        look.page.goto("/runs/hour")
        for nth in range(1, hour // piece + 1):
            pace.up_to(nth * piece * RATE)
            look.page.wait_for_function("(least) => window.heard >= least", arg=nth * piece * RATE, timeout=120_000)
            look.page.clock.run_for(piece * 1_000)
            if nth % max(hour // piece // 10, 1) == 0:
                heaps.append(look.heap_mb())
        return heaps, int(look.page.evaluate("window.heard"))
