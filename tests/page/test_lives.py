"""A run while one looks: begun from the form, torn by a kill, whole although the server died; and old runs, told as by `show`."""

import asyncio
import json
import re
import shlex
import signal
import urllib.request

import pytest
from playwright.sync_api import expect
from tests.histories.record import bring_back
from tests.page.browser import PHONE, Visitor
from tests.page.node import HERE
from tests.page.scene import bare, served

from holdfast.cli.view.tree import History
from holdfast.client.family import account

pytestmark = pytest.mark.slow

ROW = "[role=treeitem]"
HIGH = {"width": 1440, "height": 1600}
# Notes the moment at which an element appears, and how late the page was with its own clockwork meanwhile.
WATCH = """
(wanted) => {
  window.seen = null; window.late = 0;
  let last = performance.now();
  setInterval(() => { const now = performance.now(); window.late = Math.max(window.late, now - last - 50); last = now; }, 50);
  const look = () => {
    if (window.seen === null && document.querySelector(wanted)) window.seen = performance.timeOrigin + performance.now();
  };
  new MutationObserver(look).observe(document.body, { childList: true, subtree: true });
}
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A store and a server; nothing else is there yet."""
    with bare(tmp_path_factory.mktemp("lives")) as made:
        yield made


@pytest.fixture
def ana(place, browser):
    """Somebody with a screen so high that every row is in the page."""
    visitor = Visitor(browser, place.address, place.tokens["ana"], size=HIGH)
    yield visitor
    visitor.leave()


def events_of(place, run, dropped=False):
    asked = urllib.request.Request(
        f"{place.address}/api/runs/{run}/events?limit=1000{'&dropped=true' if dropped else ''}",
        headers={"Authorization": f"Bearer {place.tokens['ana']}"},
    )
    with urllib.request.urlopen(asked) as answer:
        return json.load(answer)["events"]


def journal(page, run, length):
    """The numbers, kinds and keys of all rows of the journal, as the page has them once there are as many."""
    page.goto(f"/runs/{run}/journal")
    expect(page.locator(".ev-row[data-seq]")).to_have_count(length)
    return page.locator(".ev-row[data-seq]").evaluate_all(
        """rows => rows.map(row => [
            Number(row.dataset.seq), ...['.ev-kind-name', '.ev-key'].map(each => row.querySelector(each).textContent)
        ])"""
    )


def test_a_run_begun_from_the_form_is_torn_before_ones_eyes_and_goes_on(place, ana):
    place.hold.touch()
    doomed = place.worker("doomed", "lives.py")
    place.act(lambda hf: served(hf, "expedition"))
    page = ana.goto("/agents/expedition", "form.start")
    page.fill("form.start [aria-label=where]", "Kelp bay")
    page.fill("form.start [aria-label=divers]", "3")
    page.click("form.start [aria-label=night] >> text=yes")
    page.fill("#start-id", "kelp-bay")
    page.click("form.start button[type=submit]")
    page.wait_for_url("**/runs/kelp-bay")
    expect(page.locator(".tl-rows .bar.going")).to_have_count(3)
    page.evaluate(WATCH, ".pill")
    doomed.kill()
    doomed.wait()
    expect(page.locator(".run-state")).to_have_text("interrupted")  # nobody has taken it over yet
    expect(page.locator(".fault")).to_contain_text(
        re.compile(r"There is no sign of its worker doomed.*Its last sign was at \d\d:\d\d:\d\d")
    )
    expect(page.locator(".run-says")).to_contain_text("it waits for a worker with its code")
    expect(page.locator(".fault")).to_contain_text("it waits for a worker with its code.")
    expect(page.locator(".run-facts")).to_contain_text("Interruptions1interrupted now")
    expect(page.locator(".tl-rows .bar.lost")).to_have_count(3)  # cut off, although nobody goes on yet
    expect(page.locator(".tl-rows .bar.going")).to_have_count(0)
    place.worker("saviour", "lives.py")
    expect(page.locator(".pill")).to_have_count(1, timeout=30_000)
    expect(page.locator(".fault")).to_have_count(0)
    seen, late = page.evaluate("[window.seen, window.late]")
    place.hold.unlink()
    expect(page.locator(".run-state")).to_have_text("completed")
    events = events_of(place, "kelp-bay")
    (torn,) = (event for event in events if event["kind"] == "run.interrupted")
    claimed = page.evaluate("text => Date.parse(text)", torn["at"])
    assert 0 <= seen - claimed < 2_000 + late, (seen - claimed, late)
    recorded = page.evaluate("text => Date.parse(text)", events[torn["seq"] - 1]["at"])
    # Its last sign: of a body it says that it runs when that is a second old.
    before = torn["data"]["seen"]
    assert before >= max(recorded, *(call["began"] + 1_000 for call in torn["data"]["open"]))
    spoken = page.evaluate(
        "async ms => (await import('/static/js/time.js')).spoken(ms)", round(claimed) - round(before)
    )
    told = page.locator(".pill").get_attribute("aria-label")
    assert told == f"interruption: doomed was gone, saviour went on within {spoken}"
    expect(page.locator(".run-facts")).to_contain_text(f"no process for {spoken}")
    lost = [each for each in names(page) if each.startswith("dive")]
    assert len(lost) == 3
    assert all(re.fullmatch(r"dive \d, lost with its process at [\d:]+, ran again, done in .*", each) for each in lost)
    assert journal(page, "kelp-bay", len(events)) == [
        [event["seq"], event["kind"], event["key"] or ""] for event in events
    ]
    page.goto("/fleet")
    expect(page.locator(".lanes")).to_contain_text(f"1 run went on within {spoken}")


def names(page):
    """What a reader of screens hears, row by row, without what stands before a row."""
    heard = page.locator(ROW).evaluate_all("rows => rows.map(row => row.ariaLabel)")
    return [re.sub(r"^(after an interruption: .*?: )+", "", each) for each in heard]


def test_a_server_that_dies_is_an_amber_dot_and_then_every_event_comes_once(place, ana):
    if not any("worker" in each.args and each.poll() is None for each in place.processes):
        place.worker("counter", "lives.py")
        place.act(lambda hf: served(hf, "tally"))
    run = place.act(lambda hf: hf.start("tally", 40, id="tally"))
    page = ana.goto("/runs/tally", ROW)
    expect(page.locator(ROW)).to_have_count(10)
    beside = ana.context.new_page()  # it hears of questions from the first
    beside.goto("/approvals")
    beside.wait_for_selector(".inbox, .empty")
    on = lambda hf: hf.get("tally").send("on", 1)  # noqa: E731
    place.act(on)
    expect(page.locator(ROW)).to_have_count(20)
    server = next(each for each in place.processes if "serve" in each.args and each.poll() is None)
    server.send_signal(signal.SIGKILL)
    server.wait()
    expect(page.locator(".live.lost")).to_have_text(re.compile(r"as of \d\d:\d\d:\d\d"))
    expect(beside.locator(".live.lost")).to_have_text(re.compile(r"as of \d\d:\d\d:\d\d"), timeout=10_000)
    amber = page.evaluate("getComputedStyle(document.querySelector('.live.lost i')).backgroundColor")
    place.act(on)  # while nobody tells the page
    place.act(lambda hf: at_least(hf, "tally", 30))
    place.serve(int(place.address.rpartition(":")[2]))
    expect(page.locator(".live")).to_have_text("live", timeout=40_000)
    expect(beside.locator(".live")).to_have_text("live", timeout=40_000)
    assert page.evaluate("getComputedStyle(document.querySelector('.live i')).backgroundColor") != amber
    expect(page.locator(ROW)).to_have_count(30)
    place.act(on)
    expect(page.locator(".run-state")).to_have_text("completed")
    assert [each.partition(",")[0] for each in names(page)] == [f"count {nth}" for nth in range(1, 41)]
    # An event that came twice would be paid for twice, in the page's own sum.
    assert page.locator(".spend-line").get_attribute("aria-label") == "$8.20 spent"
    events = events_of(place, "tally")
    assert journal(page, run.id, len(events)) == [[event["seq"], event["kind"], event["key"] or ""] for event in events]


async def at_least(hf, id, steps):
    async with asyncio.timeout(60):
        while (await hf.get(id).info()).spent.usd < sum(range(steps + 1)) / 100 - 1e-6:
            await asyncio.sleep(0.02)


def test_a_run_that_is_retried_by_somebody_else_is_followed_on(place, ana):
    """What it does after its failure comes by itself, as often as it is retried."""
    if not any("worker" in each.args and each.poll() is None for each in place.processes):
        place.worker("leaper", "lives.py")
    place.act(lambda hf: served(hf, "leaper"))
    place.hold.touch()
    place.act(lambda hf: hf.start("leaper", "far", id="leap-1"))
    page = ana.goto("/runs/leap-1", ".run-title")
    expect(page.locator(".run-state")).to_have_text("failed")
    for _ in range(2):
        events = place.act(lambda hf: again(hf, "leap-1"))
        expect(page.locator(".tab[data-id=journal] .badge")).to_have_text(str(events), timeout=15_000)
        expect(page.locator(".run-state")).to_have_text("failed")
    expect(page.locator("[data-at^='dropped/']")).to_have_count(2)  # what each retry took out is there to be looked at
    page.locator("[data-at^='dropped/']").first.click()
    expect(page.locator(f"{ROW}[aria-label*='taken out by the retry']")).to_have_count(2)
    place.hold.unlink()
    place.act(lambda hf: again(hf, "leap-1"))
    expect(page.locator(".run-state")).to_have_text("completed", timeout=15_000)
    events = events_of(place, "leap-1", dropped=True)
    assert journal(page, "leap-1", len(events)) == [
        [event["seq"], event["kind"], event["key"] or ""] for event in events
    ]


def serving(place, agent):
    """Have a worker that serves the agents of `lives.py`."""
    if not any("worker" in each.args and each.poll() is None for each in place.processes):
        place.worker("carrier", "lives.py")
    place.act(lambda hf: served(hf, agent))


def test_a_question_is_whole_where_a_person_is_needed(place, ana):
    """A full stop does not end it: only where there is no room is it cut, and that can be seen."""
    serving(place, "asks")
    place.act(lambda hf: hf.start("asks", "ACME GmbH & Co. KG", id="acme"))
    place.act(lambda hf: hf.get("acme").wait("waiting"))
    page = ana.goto("/runs", ".needs li")
    expect(page.locator(".needs li a.strong")).to_have_text("May ACME GmbH & Co. KG go on?")
    place.act(lambda hf: hf.get("acme").cancel())


def test_nothing_is_said_of_calls_that_are_not_read_yet(place, ana):
    serving(place, "tally")
    place.act(lambda hf: hf.start("tally", 5, id="unread"))
    place.act(lambda hf: hf.get("unread").wait("completed"))
    held = []
    ana.page.route(re.compile(r"/api/runs/unread/events\?"), lambda route: held.append(route), times=1)  # noqa: PLW0108
    ana.page.goto("/runs/unread")
    expect(ana.page.locator(".run-facts")).to_contain_text("Steps5")
    expect(ana.page.locator(".run-main .ghost")).not_to_have_count(0)
    assert not re.search("calls|anything|no process|folded", ana.page.locator("main").inner_text())
    held[0].continue_()
    expect(ana.page.locator(ROW)).to_have_count(5)
    expect(ana.page.locator(".run-facts")).to_contain_text("5 calls")


LONG = "an_agent_whose_name_is_longer_than_a_phone_is_wide_because_nobody_counted_its_letters_in_time"
# Where an element ends that reaches beyond the screen, or does not show all of its text.
BEYOND = """
wanted => [...document.querySelectorAll(wanted)].filter(each => each.getBoundingClientRect().right > innerWidth + 1
  || each.scrollWidth > each.clientWidth + 1 && each.clientWidth).map(each => each.textContent)
"""


def test_long_names_fit_on_a_phone_and_everything_can_be_reached(place, browser):
    serving(place, LONG)
    run = f"run-{'x' * 82}"
    place.act(lambda hf: hf.acting_as("ana").start(LONG, "far", id=run))
    place.act(lambda hf: hf.get(run).wait("completed", "failed"))
    phone = Visitor(browser, place.address, place.tokens["ana"], size=PHONE)
    for path, wanted in (
        ("/runs", ".card"),
        (f"/runs/{run}", ".dw-row"),
        (f"/runs/{run}/audit", ".deed"),
        (f"/agents/{LONG}", "form.start"),
        ("/audit", ".deed"),
    ):
        page = phone.goto(path, wanted)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        beyond = page.evaluate(BEYOND, ".run-facts dd, .acts button, .crumbs a, .deed > *, [aria-selected=true]")
        assert beyond == [], path
    phone.leave()
    tablet = Visitor(browser, place.address, place.tokens["ana"], size={"width": 780, "height": 900})
    page = tablet.goto(f"/runs/{run}", ROW)
    assert page.evaluate(BEYOND, "[role=tab]") == []
    page.click("[role=tab][data-id=audit]")
    tablet.goto(f"/runs/{run}?at=leap%230", ".side .facts")
    assert page.evaluate("[...document.querySelectorAll('.side')].every(side => side.scrollWidth <= side.clientWidth)")
    tablet.leave()


def test_a_wait_of_a_run_that_is_over_does_not_wait(place, ana):
    """The message came, so the time for it was not needed; the other run still waits."""
    serving(place, "listens")
    place.act(lambda hf: hf.start("listens", "ana", id="heard"))
    place.act(lambda hf: hf.start("listens", "ben", id="listens"))
    for each in ("heard", "listens"):
        place.act(lambda hf, run=each: hf.get(run).wait("waiting"))
    place.act(lambda hf: hf.get("heard").send("go", 1))
    place.act(lambda hf: hf.get("heard").wait("completed"))
    page = ana.goto("/compare?a=heard&b=listens&all=true", ".cmp")
    row = page.locator(".cmp-row", has_text="wait for a message").first
    expect(row.locator(".cmp-call")).to_contain_text("wait for a message24 h")
    expect(row.locator(".cmp-half[data-of=A] .cmp-meta")).to_contain_text("over before its time")
    expect(row.locator(".cmp-half[data-of=B] .cmp-meta")).to_contain_text("waiting")


def test_progress_is_told_in_the_list_and_with_the_plan_at_the_run(place, ana):
    serving(place, "plans")
    place.act(lambda hf: hf.start("plans", "ana", id="planned"))
    place.act(lambda hf: hf.get("planned").wait("waiting"))
    page = ana.goto("/runs?q=planned", "tr[data-row]")
    expect(page.locator("tr[data-row] .prog")).to_have_text("1/4")
    page = ana.goto("/runs/planned", ".run-facts")
    expect(page.locator(".run-facts")).to_contain_text("Plan2 of 3 shipprogress 1 of 4, gathered")


def test_the_day_and_the_first_time_on_the_axis_keep_apart(place, ana):
    serving(place, "tally")
    place.act(lambda hf: hf.start("tally", 5, id="apart"))
    place.act(lambda hf: hf.get("apart").wait("completed"))
    page = ana.goto("/runs/apart", ".tl-line .day")
    day, *ticks = page.evaluate(
        "[...document.querySelectorAll('.tl-line .day, .tl-line .tick')].map(each => each.getBoundingClientRect().toJSON())"
    )
    assert all(tick["left"] >= day["right"] for tick in ticks)


def test_of_a_fork_it_is_said_which_results_it_has_and_which_it_paid_for_again(place, ana):
    if not any("worker" in each.args and each.poll() is None for each in place.processes):
        place.worker("forker", "lives.py")
    place.act(lambda hf: served(hf, "tally"))
    place.act(forked)
    page = ana.goto("/compare?a=five&b=five-again", ".cmp-same")
    told = (
        r"5 calls are the same count: B has the results of 3 from A and paid nothing for them; "
        r"2 were made again, for \$0\.09 and \d"
    )
    expect(page.locator(".cmp-same")).to_have_text(re.compile(told))
    page.click(".cmp-same")
    expect(page.locator(".cmp-half[data-of=B]:has-text('from A, not paid again')")).to_have_count(3)
    ana.goto("/compare?a=five-again&b=five", ".cmp-same")
    expect(page.locator(".cmp-same")).to_contain_text("A has the results of 3 from B")


async def forked(hf):
    run = await hf.start("tally", 5, id="five")
    await run.wait("completed")
    fork = await run.fork(at="count#3", effects="new", id="five-again")
    await fork.wait("completed")


def test_a_fleet_without_a_worker_says_since_when(place, ana):
    """Nothing that a dead worker said last is shown as if it were so now."""
    worker = place.worker("lonely", "lives.py")
    place.act(lambda hf: served(hf, "tally"))
    place.hold.touch()
    place.act(lambda hf: hf.start("expedition", "Reef", 1, id="left"))
    place.act(lambda hf: hf.get("left").wait("running"))
    for each in (worker, *place.processes):
        if "worker" in each.args:
            each.kill()
            each.wait()
    page = ana.goto("/fleet", ".numbers")
    expect(page.locator(".head [role=status]")).to_have_text(
        re.compile(r"No worker answers: the last was found dead at \d\d:\d\d:\d\d(, \d.* ago)?; ")
    )
    expect(page.locator(".lanes text").first).to_have_text(
        re.compile(r"found dead at \d\d:\d\d:\d\d; (\d+ runs? went on within .*, )?1( run)? waits for another worker")
    )
    assert page.locator(".lanes .rip").count() >= 1
    expect(page.locator(".lanes .life")).to_have_count(0)  # since when they lived is not known
    for span in ("1 h", "15 min"):
        page.click(f".workers header >> text={span}")
        times, lines = (
            page.locator(each).evaluate_all("all => all.map(each => each.getBoundingClientRect().x)")
            for each in (".lane-axis span", ".lanes .grid")
        )
        assert len(times) >= 3
        assert all(min(abs(time - line) for line in lines) <= 1.5 for time in times), (times, lines)
    place.hold.unlink()
    expect(page.locator(".number").first).to_have_text(re.compile(r"Steps a second0\.0no worker answers"))


def test_what_the_form_starts_is_a_command_that_starts_the_same(place, ana):
    place.worker("form", "lives.py")
    place.act(lambda hf: served(hf, "expedition"))
    page = ana.goto("/agents/expedition", "form.start")
    page.fill("form.start [aria-label=where]", "it's cold")
    page.fill("form.start [aria-label=divers]", "0")
    page.fill("#start-id", "by-hand")
    page.fill("#start-labels", "team=night, desk=nature")
    page.fill("form.start [aria-label='Budget in dollars']", "2")
    page.click("details.as summary")
    page.once("dialog", lambda dialog: dialog.dismiss())
    with page.expect_event("dialog") as asked:
        page.evaluate("setTimeout(() => location.reload())")
    assert asked.value.type == "beforeunload", "who has typed is asked before all of it is gone"
    assert page.input_value("#start-id") == "by-hand"
    words = shlex.split(page.locator("details.as pre").inner_text().partition("\n\n")[0].replace("\\\n", " "))
    assert words[:3] == ["holdfast", "start", "expedition"]
    place.run(*words[1:])
    info = place.act(lambda hf: hf.get("by-hand").wait("completed"))
    assert (info.labels, info.budget.usd) == ({"team": "night", "desk": "nature"}, 2)
    assert place.act(lambda hf: hf.get("by-hand").result()) == "it's cold: 0 dives"


async def again(hf, id):
    """Retry a run, and wait until it has ended again; how many events it has then."""
    run = hf.get(id)
    await run.retry(by="bo")
    return (await run.wait("completed", "failed")).events


# Old runs, of every kind of event


CALLS = ("step", "model", "child", "question", "timer")
# What the page says instead of a state; a timer or question has words of its own.
STATES = {
    "done": r"done|approved|denied|answered|expired|withdrawn",
    "failed": "failed|denied|expired",
    "cancelled": "no longer waited for|withdrawn|cancelled",
    "running": "runs for|lost with its process|cut off",  # the latter two if its worker is gone
    "waiting": "waits|attempt",
    "doubt": "in doubt",
}
OLD = ("2026-11-16", "2026-11-17-events", "2026-11-16-forks")


def told(items):
    """The calls of a tree in the order in which they stand there, branches opened."""
    for node in items:
        if node.sort == "branch":
            yield from told(node.items)
        elif node.sort in CALLS and not node.dropped:
            yield node


@pytest.mark.nightly
@pytest.mark.parametrize("recorded", OLD)
def test_runs_of_every_kind_are_told_as_show_tells_them(browser, tmp_path, recorded):
    """Of each kind of event a recorded run is drawn: calls, states and remarks are those that `holdfast show` prints."""
    with bare(
        tmp_path, prepare=lambda url: bring_back(HERE.parent / "histories" / recorded / "sqlite.db.gz", url)
    ) as place:
        trees, kinds = place.act(read)
        chosen = cover(kinds)
        visitor = Visitor(browser, place.address, place.tokens["ana"], size=HIGH)
        for run in chosen:
            page = visitor.goto(f"/runs/{run}", ".run-title")
            expect(page.locator(".run-main .ghost")).to_have_count(0)
            wanted = [node for node in told(trees[run].items) if not (node.sort == "timer" and node.name != ":sleep")]
            if wanted:
                page.wait_for_selector(ROW)
            heard = names(page)
            for node in wanted:
                said = [each for each in heard if says(node, each)]
                assert said, (run, node.name, node.input, node.state, heard)
            pills = expect(page.locator(".pill"), run)
            pills.not_to_have_count(0) if trees[run].interruptions else pills.to_have_count(0)
        visitor.leave()
    assert set().union(*(kinds[run] for run in chosen)) == set().union(*kinds.values())


def says(node, text):
    """Is this the sentence of that call?"""
    question = node.sort == "question"
    name = {":sleep": "sleep"}.get(node.name, node.name)
    if not text.startswith(f"question: {name}" if question else name):
        return False
    if not re.search(STATES[node.state], text):
        return False
    faults = [remark.text for remark in node.remarks if remark.tone == "bad"]
    return all(each.partition(": ")[0] in text for each in faults)


async def read(hf):
    runs = [info.id for info in await hf.runs(limit=1000)]
    accounts = {id: (await account(hf, id)).told for id in runs}
    return {id: History(events) for id, events in accounts.items()}, {
        id: {event.kind for event in events} for id, events in accounts.items()
    }


def cover(kinds):
    """A few runs that have every kind between them."""
    left, chosen = set().union(*kinds.values()), []
    while left:
        best = max(sorted(kinds), key=lambda run: len(kinds[run] & left))
        chosen.append(best)
        left -= kinds[best]
    return chosen
