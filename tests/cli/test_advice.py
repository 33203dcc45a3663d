"""What commands say of runs and questions is true and of use: the commands in it can be pasted, and say no more than they do."""

import asyncio
import re
import shlex
import time
from dataclasses import dataclass

import pytest

import holdfast
from holdfast import Budget
from holdfast.cli import main
from holdfast.cli.view.advice import without_id

URL = "sqlite:holdfast.db"


@dataclass
class Order:
    item: str
    number: int = 1


@holdfast.step
def cost() -> int:
    holdfast.spend(usd=1)
    return 1


@holdfast.step(in_doubt="ask", timeout=0.01)
async def pay(amount: int) -> str:
    await asyncio.sleep(10)
    return "paid"


@holdfast.step
def broken() -> int:
    raise ValueError("no good")


@holdfast.agent
async def payer(amount: int) -> str:
    return await pay(amount)


@holdfast.agent
async def buyer(item: str) -> str:
    decided = await holdfast.approve(f"Buy {item}?", show=Order(item), edit=True)
    return f"{decided.approved} {decided.by}"


@holdfast.agent
async def seats() -> int:
    return await holdfast.ask("How many seats?", int)


@holdfast.agent
async def word() -> str:
    return await holdfast.ask("Which word?", str)


@holdfast.agent
async def spender() -> int:
    return await cost() + await cost()


@holdfast.agent
async def failing() -> int:
    return await broken()


@holdfast.agent
async def mother() -> int:
    return await failing()


@holdfast.agent
async def listener() -> str:
    return await holdfast.receive("words", str)


@holdfast.agent
async def both() -> list[int]:
    return await asyncio.gather(holdfast.ask("Left?", int), holdfast.ask("Right?", int))


AGENTS = [both, payer, buyer, seats, word, spender, failing, mother, listener]


@pytest.fixture
def with_worker(cli):
    """Do something while a worker is there; it has a client, and `cli` to be awaited."""

    def do(work):
        async def scene():
            async with holdfast.open(URL, agents=AGENTS) as hf:
                return await work(hf, lambda *words: asyncio.to_thread(cli, *words))

        return asyncio.run(scene())

    return do


async def asks(hf, agent, run, *args, **more):
    await (await hf.start(agent, *args, id=run, **more)).wait_for_question(timeout=20)


async def ends(hf, agent, run):
    await (await hf.start(agent, id=run)).wait(timeout=20)


async def trouble(hf, cli):
    """A run for each thing that somebody has to do something about."""
    await asks(hf, payer, "doubt", 5)
    await asks(hf, buyer, "buy", "tea")
    await asks(hf, seats, "seats")
    await asks(hf, spender, "spend", budget=Budget(usd=1, at_limit="ask"))
    await ends(hf, mother, "failed")
    await hf.start(listener, id="paused")
    await hf.get("paused").pause(reason="a look", by="ana")
    await hf.start(listener, id="waits")
    await hf.get("waits").wait("waiting", timeout=20)


# Commands that can be pasted


def advised(output):
    """The commands in an output: to the end of the line, or of their quotes."""
    quoted = re.findall(r"`(holdfast [^`]+)`", output)
    return quoted + re.findall(r"(?<![`\w])holdfast (?:[a-z]+)(?: .*|$)", re.sub(r"`[^`]*`", "", output), re.MULTILINE)


def check_pasted(line):
    """It means the same to a shell as to us, and there is such a command."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = list(lexer)
    assert words == shlex.split(line), f"a shell would not pass this on as it is: {line}"
    _, verb, *rest = words
    assert verb in main.commands, line
    main.commands[verb].make_context(verb, rest)


def test_what_is_advised_can_be_pasted(cli, with_worker):
    """Every command that any output advises is one, as it stands, and takes no decision that its line does not name."""
    with_worker(trouble)
    outputs = [cli("approvals"), cli("runs"), cli("runs", "--stuck"), cli("doctor"), cli("approve", "nothing")]
    outputs += [cli("approve", "seats"), cli("answer", "buy", "1"), cli("approve", "doubt"), cli("show", "nothing")]
    runs = ("doubt", "buy", "seats", "spend", "failed", "paused", "waits")
    outputs += [cli("show", run) for run in runs]
    outputs += [
        cli("pause", "waits"),
        cli("resume", "waits"),
        cli("send", "waits", "words", "1"),
        cli("cancel", "waits"),
    ]
    lines = {line for each in outputs for line in advised(each.output)}
    for line in lines:
        check_pasted(line)
    assert sum(line.startswith("holdfast answer q-") for line in lines) == 4  # one of the seats, three of the doubt
    assert {"holdfast deny q-", "holdfast retry f", "holdfast resume "} <= {line[:16] for line in lines}
    for line in lines:
        if "VALUE" in line or "JSON" in line:
            refused = cli(*shlex.split(line)[1:])
            assert refused.exit_code == 2, (line, refused.output)


def test_a_word_that_keeps_a_place_is_no_answer(cli, with_worker):
    """Pasted as it is printed, the command of a question for a text says what to put there."""
    with_worker(lambda hf, _: asks(hf, word, "w"))
    refused = cli("answer", "w", "VALUE")
    assert (refused.exit_code, "write your answer in the place of VALUE" in refused.output) == (2, True)
    assert cli("answer", "w", '"VALUE"').exit_code == 0


def test_a_question_is_told_with_what_it_shows(cli, with_worker):
    """By `show` too: the value, that it may be edited and which fields it has; of a budget, how much more it would be."""
    with_worker(trouble)
    told = cli("show", "buy").output
    assert '  {"item": "tea", "number": 1}\n' in told
    assert re.search(r"Approve it, edited \(item, number\):  holdfast approve q-\w+ --data JSON\n", told)
    told = cli("show", "spend").output
    assert '  {"usd": 1.0}\n' in told
    assert "what is shown in addition" in " ".join(told.split())
    assert re.search(r"It did not happen, run it:  holdfast answer q-\w+ run\n", cli("show", "doubt").output)


def test_which_question_a_command_decides_is_told(cli, with_worker):
    """Where there are several, each stands above its commands."""
    with_worker(lambda hf, _: asks(hf, both, "b"))
    told = re.findall(
        r"asks a person \((q-\w+)\)\n    (\w+)\?\n  Answer it, .* (q-\w+) VALUE\n", cli("show", "b").output
    )
    assert sorted(question for _, question, _ in told) == ["Left", "Right"]
    assert all(one == other for one, _, other in told)


# Doctor


def test_doctor_advises_the_run_above_what_failed(cli, with_worker):
    """A retry of the child alone would leave its parent failed."""
    with_worker(trouble)
    (problem,) = [each for each in cli.json("doctor")["problems"] if "failed" in each["problem"]]
    assert (problem["run"], problem["problem"]) == ("failed", "1 run has failed, failed, and 1 below")
    assert problem["advice"].endswith("holdfast retry failed")


# Times


def test_what_came_from_outside_has_its_own_time(cli, with_worker):
    """A decision and a request to stop are told at the time when somebody made them, also when a worker has taken them."""

    async def begin(hf, cli):
        await asks(hf, buyer, "buy", "tea")
        await hf.start(listener, id="stops")
        await hf.get("stops").wait("waiting", timeout=20)

    async def end(hf, cli):
        await hf.get("buy").wait(timeout=20)
        await hf.get("stops").wait(timeout=20)

    def told():
        shown = (cli("show", "buy").output + cli("show", "stops").output).splitlines()
        return [line.split()[0] for line in shown if "approved by ana" in line or "asked to stop" in line]

    with_worker(begin)
    cli("approve", "buy", "--by", "ana")
    cli("cancel", "stops", "--by", "ana")
    before = told()
    time.sleep(1.1)
    with_worker(end)
    assert len(before) == 2
    assert told() == before


# Decisions


def test_a_decision_says_who_takes_it(cli, with_worker):
    """Nobody, or a run that is paused: it is kept, and the command that lets it go on is there. The list says it too."""
    with_worker(trouble)
    told = cli("approve", "buy", "--by", "ana").output
    assert "It is kept for run buy, but no live worker serves 'buyer', so nothing happens by itself.\n" in told
    assert told.endswith("  Go on: holdfast run FILE.py:buyer --id buy\n")
    assert cli("send", "waits", "words", "1").output.endswith("  Go on: holdfast run FILE.py:listener --id waits\n")
    cli("pause", "seats")
    assert "\n  its run is paused\n" in cli("approvals", "--run", "seats").output
    told = cli("answer", "seats", "3").output
    assert told.endswith("Run seats is paused; it takes this when it goes on:\n  holdfast resume seats\n")
    listed = cli("approvals", "--all", "--run", "seats").output
    assert re.search(
        r"\n  answered by \w+ on \d{4}-[-\d]+ [:\d]+\n  3\n  its run is paused, and has not taken it yet\n", listed
    )
    with_worker(lambda hf, _: hf.get("buy").wait(timeout=20))
    assert "not taken" not in cli("approvals", "--all", "--run", "buy").output


def test_what_was_refused_is_told_in_commands(cli, with_worker):
    """And truly: what a question wants, how it ended and what was answered, or that nothing is asked."""
    with_worker(trouble)
    refused = [cli("approve", "seats"), cli("answer", "buy", "1"), cli("deny", "doubt"), cli("approve", "nothing")]
    assert re.search(r"  holdfast answer q-\w+ VALUE\nError: question 'q-\w+' wants an answer", refused[0].output)
    assert re.search(r"  holdfast deny q-\w+\nError: question 'q-\w+' wants a yes or a no", refused[1].output)
    assert "there is no question and no run 'nothing'" in refused[3].output
    assert cli("answer", "seats", "3").exit_code == 0
    with_worker(lambda hf, _: hf.get("seats").wait(timeout=20))
    refused += [cli("approve", "seats"), cli("answer", "seats", "x"), cli("approve", "failed")]
    assert "run 'failed' is failed and asks nobody anything" in refused[-1].output
    for late in refused[4:6]:
        assert "was decided before: answered by" in late.output
        assert "This was answered: 3\n" in late.output
    assert [each.exit_code for each in refused] == [2] * 7
    assert all("hf." not in each.output for each in refused)


def test_a_retry_says_what_it_does(cli, with_worker):
    """A paused run is resumed, one whose budget is spent may have another, and who never failed does not go on from there."""
    with_worker(trouble)
    assert cli("retry", "paused").output.startswith("paused is no longer paused")
    assert cli("retry", "failed").output.startswith("failed goes on from its failure")
    cli("deny", "spend", "--by", "ana")
    with_worker(lambda hf, _: hf.get("spend").wait(timeout=20))
    assert (
        "with --budget usd=5 for example if it may spend more in all:  holdfast retry spend\n"
        in cli("show", "spend").output
    )


def test_a_pause_tells_what_it_holds_and_keeps_why(cli, with_worker):
    """All below is paused too; who pauses again without a reason takes none away; and nothing is said twice."""
    with_worker(trouble)
    assert cli("pause", "paused", "--by", "bob").output == "paused is paused, with all below it.\n"
    assert cli("pause", "waits", "--only").output == "waits is paused.\n"
    told = {each["id"]: each["stuck"] for each in cli.json("runs", "--stuck")["runs"]}
    assert told["paused"] == "it is paused by ana: a look"


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("run 'r' cannot go on: no", "cannot go on: no"),
        ("run 'r': no", "no"),
        ("Diverged: run 'r' asked for x", "Diverged: asked for x"),
        ("BudgetExceeded: the budget of run 'r' is spent", "BudgetExceeded: the budget of run 'r' is spent"),
        ("run 'r.1' cannot go on", "run 'r.1' cannot go on"),
    ],
)
def test_an_id_is_left_out_only_where_the_sentence_is_whole_without_it(told, said):
    assert without_id(told, "r") == said
