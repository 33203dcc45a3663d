"""How a reducer's state is kept: by what changed, at every event, over deploys, and held against other code."""

import asyncio
import json
from dataclasses import dataclass, field, replace

import pytest

import holdfast
import holdfast.testing
from holdfast import After, Do, Done, NondeterminismError, Outcome, Spawn


@dataclass(frozen=True)
class Paid:
    account: str
    cents: int


@dataclass(frozen=True)
class Late:
    pass


@dataclass(frozen=True)
class Closed:
    pass


@dataclass(frozen=True)
class Books:
    accounts: dict[str, int] = field(default_factory=dict)
    count: int = 0
    last: tuple[str, ...] = ()


def booked(state: Books, event: Paid | Late | Closed) -> Books | tuple[Books, list[holdfast.Command]]:
    match event:
        case Paid(account, cents):
            accounts = state.accounts | {account: state.accounts.get(account, 0) + cents}
            return Books(accounts, state.count + 1, (*state.last[-20:], f"{account} paid {cents}"))
        case Closed():
            return state, [Done()]
        case Late():
            return replace(state, last=(*state.last, "late"))


books = holdfast.reducer(Books, name="books", every=5)(booked)
PAID = [Paid(f"the account of customer number {n * 7 % 101}, in the shop at the corner", n) for n in range(300)]


async def sent(run, events, since=0):
    for number, event in enumerate(events, since):
        await run.send(event, key=str(number))


async def rested(run, count):
    """Until so many events are folded."""
    async with asyncio.timeout(60):
        while (await run.state()).folded < count:
            await asyncio.sleep(0.002)


STATES = [Books()]
for each in PAID:
    STATES.append(books(STATES[-1], each))


async def checkpoints(run):
    return [event async for event in run.events(follow=False) if event.kind == "checkpoint"]


@pytest.mark.slow
async def test_the_state_at_any_event_is_what_the_function_comes_to_there():
    async with holdfast.testing.open(agents=[books]) as hf:
        run = await hf.start(books, id="r")
        await sent(run, PAID)
        await rested(run, 300)
        places = [event.seq async for event in run.events(follow=False) if event.kind == "message.received"]
        for count in (1, 5, 6, 7, 99, 250, 300):
            state = await run.state(at=places[count - 1])
            assert (state.folded, state.seq) == (count, places[count - 1])
            assert await state.value() == vars(STATES[count])
        assert (await run.state(at=0)).folded == 1
        with pytest.raises(holdfast.BadArguments, match="has a history of"):
            await run.state(at=9999)


@pytest.mark.slow
async def test_a_state_is_stored_by_what_changed_and_survives_crashes():
    async with holdfast.testing.open(agents=[books]) as hf:
        run = await hf.start(books, id="r")
        for part in range(6):
            await sent(run, PAID[part * 50 : part * 50 + 50], part * 50)
            await rested(run, part * 50 + 50)
            await hf.crash()
        stored = await checkpoints(run)
        chains = [len(event.data.get("chain", ())) for event in stored]
        assert max(chains) >= 3
        sizes = [len(json.dumps(await (await run.state(at=event.seq)).value())) for event in stored]
        events = await hf.store.events_at("r", [event.seq for event in stored])
        assert sum(len(event.value) for event in events) < sum(sizes) / 2
        async with holdfast.open(hf.store.url.partition("?")[0]) as other:  # without the code: what is stored
            for count, event in enumerate(stored):
                state = await other.get("r").state(at=event.seq)
                assert state.folded == event.data["choices"]["reducer"]["folded"]
                assert await state.value() == vars(STATES[state.folded]), count
            assert (await other.get("r").step(stored[-1].key)).kind == "checkpoint"
            assert await (await other.get("r").step(stored[-1].key)).result() == await state.value()
        await run.send(Closed())
        assert await run.result(timeout=10) == STATES[-1]


@pytest.mark.parametrize("keyed", [True, False])
async def test_a_message_is_not_kept_twice_once_a_checkpoint_is_behind_it(tmp_path, keyed):
    async with holdfast.testing.open(agents=[books]) as hf:
        run = await hf.start(books, id="r")
        for number, event in enumerate(PAID):
            await run.send(event, key=str(number) if keyed else None)
        await rested(run, 300)
        signals = await hf.store.whole_inbox("r")
        assert [signal.position for signal in signals] == list(range(1, 301))
        assert [signal.value is None for signal in signals[:150]] == [True] * 150
        assert all(signal.value for signal in signals[-100:])
        kept = [signal.position for signal in signals if keyed or signal.value]
        assert [signal.position for signal in await hf.store.inbox("r", 0)] == kept
        for number in range(3) if keyed else ():
            await run.send(PAID[number], key=str(number))  # the inbox still knows that these came
        assert ((await run.state()).folded, await hf.store.count_messages("r")) == (300, 300)
        messages = (await run.snapshot()).messages
        assert [(await message.value())["Paid"]["cents"] for message in messages] == list(range(280, 300))
        keys = holdfast.Keys(tmp_path / "keys")
        keys.new("ana")
        await run.export(tmp_path / "bundle", keys=keys)
    async with holdfast.testing.open(agents=[books]) as there:
        await there.import_run(tmp_path / "bundle", keys=keys, id="c")
        await there.get("c").send(Closed())
        assert await there.get("c").result(timeout=10) == STATES[-1]


@dataclass(frozen=True)
class Journals:
    accounts: dict[str, int]
    count: int
    last: tuple[str, ...]
    currency: str


def migrated(data):
    return data | {"currency": "EUR"}


@holdfast.reducer(Journals, name="books", every=5, migrate=migrated)
def in_euros(state: Journals, event: Paid | Closed) -> Journals | tuple[Journals, list[holdfast.Command]]:
    if isinstance(event, Closed):
        return state, [Done()]
    accounts = state.accounts | {event.account: state.accounts.get(event.account, 0) + event.cents}
    return replace(state, accounts=accounts, count=state.count + 1)


@pytest.mark.slow
async def test_another_type_of_state_goes_on_from_what_changed_in_the_old_one():
    async with holdfast.testing.open(agents=[books]) as hf:
        run = await hf.start(books, Books(), id="r")
        await sent(run, PAID[:150])
        await rested(run, 150)
        hf.deploy([in_euros])
        await hf.crash()
        await sent(run, PAID[150:], 150)
        await run.send(Closed())
        end = vars(await hf.get("r").result(timeout=10))
        stored = await checkpoints(run)
        assert stored[-1].data["chain"]
    assert (end["count"], end["currency"]) == (300, "EUR")
    assert end["accounts"] == STATES[-1].accounts


# Other code


def doubled(state: Books, event: Paid | Late | Closed) -> Books | tuple[Books, list[holdfast.Command]]:
    return booked(
        state, Paid(event.account, 2 * event.cents) if isinstance(event, Paid) and event.cents == 17 else event
    )


def raising(state: Books, event: Paid | Late | Closed) -> Books | tuple[Books, list[holdfast.Command]]:
    return booked(state, event) if not isinstance(event, Paid) or event.cents != 17 else 1 // 0  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("fn", "told"),
    [(booked, None), (doubled, "the function comes to"), (raising, "the function raises ZeroDivisionError")],
)
async def test_a_change_of_the_function_is_found_where_it_comes_to_another_state(fn, told):
    async with holdfast.testing.open(agents=[books]) as hf:
        run = await hf.start(books, id="r")
        await sent(run, PAID[:60])
        await rested(run, 60)
        other = holdfast.reducer(Books, name="books", every=50)(fn)
        checked = await hf.check([other])
        (found,) = checked.replays
        assert checked.fits  # the run goes on from its last state
        if told is None:
            assert found.fits, found.reason
            return
        assert found.verdict == "differs"
        assert told in found.present
        event = int(found.reason.partition("(event ")[2].partition(")")[0])
        count = next(each.data["choices"]["reducer"]["folded"] for each in await checkpoints(run) if each.seq == event)
        assert 17 < count <= 24  # the first one that was stored behind it
        assert found.line.startswith("test_reducers_stored.py:") or "test_reducers_stored.py:" in found.line


@holdfast.step
async def charge(cents: int) -> int:
    return cents


def charging(state: Books, event: Paid | Closed | Outcome) -> Books | tuple[Books, list[holdfast.Command]]:
    match event:
        case Paid(_, cents):
            return replace(state, count=state.count + 1), [Do(charge, cents)]
        case Closed():
            return state, [Done()]
        case Outcome(value=value):
            return replace(state, last=(*state.last, str(value)))


def charging_more(state: Books, event: Paid | Closed | Outcome) -> Books | tuple[Books, list[holdfast.Command]]:
    made = charging(state, event)
    if isinstance(event, Paid) and event.cents == 9:
        return made[0], [Do(charge, 10)]
    return made


@pytest.mark.parametrize("every", [4, 100])
async def test_a_change_of_the_commands_is_found(every):
    first = holdfast.reducer(Books, name="books", every=every)(charging)
    async with holdfast.testing.open(agents=[first]) as hf:
        run = await hf.start(first, id="r")
        for event in PAID[:30]:
            await run.send(event)
            await run.wait("waiting")
        (found,) = (await hf.check([holdfast.reducer(Books, name="books")(charging)])).replays
        assert found.fits, found.reason
        checked = await hf.check([holdfast.reducer(Books, name="books")(charging_more)])
        (found,) = checked.replays
        if every == 100:  # in what would be replayed: the run would not go on
            assert (found.verdict, checked.fits) == ("diverges", False)
        else:
            assert (found.verdict, checked.fits) == ("differs", True)
        assert "charge(" in found.recorded
        if every == 100:
            with pytest.raises(NondeterminismError, match="cannot be folded with this code"):
                await run.state(agents=[holdfast.reducer(Books, name="books")(charging_more)])


# Deploys


@dataclass(frozen=True)
class Refunded:
    account: str


def refunding(state: Books, event: Paid | Refunded | Closed) -> Books | tuple[Books, list[holdfast.Command]]:
    if isinstance(event, Refunded):
        return replace(state, last=(*state.last, f"refunded {event.account}"))
    return booked(state, event)


async def test_a_type_that_the_code_learns_later_stops_no_run():
    """What was kept apart stays apart, because it is recorded; the next one is folded."""
    async with holdfast.testing.open(agents=[books]) as hf:
        run = await hf.start(books, id="r")
        await run.send("event", {"Refunded": {"account": "a"}})
        await run.send(PAID[0])
        await rested(run, 1)
        hf.deploy([holdfast.reducer(Books, name="books")(refunding)])
        await hf.crash()
        await run.send("event", {"Refunded": {"account": "b"}})
        await run.send(Closed())
        end = await run.result(timeout=10)
        assert "refunded b" in end["last"] if isinstance(end, dict) else "refunded b" in end.last
        notes = [event.data["text"] async for event in run.events(follow=False) if event.kind == "note"]
        assert notes == [
            'a message was kept apart, because it is no event of this reducer: {"Refunded":{"account":"a"}}'
        ]


@pytest.mark.parametrize("after", [3, 50, 500])
async def test_another_every_moves_nothing_that_is_recorded(after):
    first = holdfast.reducer(Books, name="books", every=20)(charging)
    async with holdfast.testing.open(agents=[first]) as hf:
        run = await hf.start(first, id="r")
        for event in PAID[:30]:
            await run.send(event)
        await run.wait("waiting")
        hf.deploy([holdfast.reducer(Books, name="books", every=after)(charging)])
        await hf.crash()
        for event in PAID[30:60]:
            await run.send(event)
        await run.wait("waiting")
        await hf.crash()
        await run.send(Closed())
        assert (await run.result(timeout=10)).count == 60
        assert hf.bodies[charge] == 60


def waiting(state: Books, event: Paid | Late | Closed) -> Books | tuple[Books, list[holdfast.Command]]:
    if isinstance(event, Paid):
        return replace(state, count=state.count + 1), [After("1m", Late())]
    return booked(state, event)


def never_late(state: Books, event: Paid | Closed) -> Books | tuple[Books, list[holdfast.Command]]:
    return booked(state, event)


@pytest.mark.parametrize("every", [2, 100])
async def test_an_event_of_a_timer_whose_type_is_gone_fails_the_run_and_is_not_lost(every):
    first = holdfast.reducer(Books, name="books", every=every)(waiting)
    async with holdfast.testing.open(agents=[first]) as hf:
        run = await hf.start(first, id="r")
        for event in PAID[:5]:
            await run.send(event)
        await run.wait("waiting")
        hf.deploy([holdfast.reducer(Books, name="books", every=every)(never_late)])
        await hf.crash()
        await hf.advance("2m")
        if every == 2:  # in the other case the code does not set the timers that the history has
            with pytest.raises(holdfast.RunFailed, match="cannot read an event that it had before"):
                await run.result(timeout=10)
        else:
            with pytest.raises(NondeterminismError):
                await run.result(timeout=10)
        hf.deploy([first])
        await hf.crash()
        await (run.retry() if every == 2 else run.resume())
        await hf.advance("2m")
        await run.wait("waiting")
        await run.send(Closed())
        assert (await run.result(timeout=10)).last == ("late",) * 5


@dataclass(frozen=True)
class Page:
    number: int


@dataclass(frozen=True)
class Go:
    chains: int = 1


@dataclass(frozen=True)
class Stop:
    pass


@dataclass(frozen=True)
class Crawl:
    pages: int = 0
    last: Page | None = None


@holdfast.step
async def fetch(number: int) -> Page:
    return Page(number)


@holdfast.agent
async def fetched(number: int) -> Page:
    return Page(number)


class Site:
    @holdfast.step
    async def fetch(self, number: int) -> Page:
        return Page(number)


SITE = Site()


def crawled(state: Crawl, event: Go | Stop | Outcome) -> Crawl | tuple[Crawl, list[holdfast.Command]]:
    match event:
        case Stop():
            return state, [Done()]
        case Go(chains):
            return state, [Do(fetch, number) for number in range(chains)]
        case Outcome(value=Page() as page):
            if page.number % 50 == 49:
                return replace(state, pages=state.pages + 1, last=page), [Spawn(fetched, page.number + 1)]
            return replace(state, pages=state.pages + 1, last=page), [Do(fetch, page.number + 1)]
    raise AssertionError(event)


crawl = holdfast.reducer(Crawl, name="crawl", every=10)(crawled)


@holdfast.reducer(Crawl, every=10)
def crawl_site(state: Crawl, event: Go | Stop | Outcome) -> Crawl | tuple[Crawl, list[holdfast.Command]]:
    match event:
        case Stop():
            return state, [Done()]
        case _:
            return replace(state, pages=state.pages + 1), [Do(SITE.fetch, state.pages)]


@pytest.mark.parametrize(("reducer", "chains"), [(crawl, 1), (crawl, 3), (crawl_site, 1)])
async def test_a_reducer_whose_steps_begin_one_another_hears_messages(reducer, chains):
    """Whatever the steps return, and although one is always under way."""
    async with holdfast.testing.open(agents=[reducer]) as hf:
        run = await hf.start(reducer, id="r")
        await run.send(Go(chains))
        await rested(run, 450)
        await hf.crash()
        await run.send(Stop())
        async with asyncio.timeout(10):
            state = await run.result()
        assert state.pages >= 449


async def test_outcomes_in_line_are_stored_as_what_their_step_returns():
    async with holdfast.testing.open(agents=[crawl]) as hf:
        run = await hf.start(crawl, id="r")
        await run.send(Go())
        for count in (40, 120, 200):
            await rested(run, count)
            await hf.crash()
        assert await checkpoints(run)
        await run.send(Stop())
        state = await run.result()
        assert state.last == Page(state.pages - 1)
