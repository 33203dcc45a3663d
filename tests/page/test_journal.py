"""The page's journal folds recorded histories into the tree that `holdfast show` draws: the same calls, states and remarks."""

import asyncio
import json
from pathlib import Path

import pytest
from tests.histories.record import bring_back
from tests.histories.test_histories import events_of
from tests.page.node import run as run_node

import holdfast
from holdfast.cli.view.tree import History, in_order
from holdfast.client.family import account
from holdfast.words.durations import moment
from holdfast.words.events import value_preview

HERE = Path(__file__).parent
RECORDED = sorted((HERE.parent / "histories").glob("*/sqlite.db.gz"))
TIMED = ("step", "model", "child", "timer", "question")


def told(event):
    """An event as the API says it."""
    return {
        "seq": event.seq, "kind": event.kind, "key": event.key, "at": moment(event.at).isoformat(), "data": event.data,
        "epoch": event.epoch, "dropped": event.dropped, "preview": value_preview(event),
    }  # fmt: skip


def lines(items, depth=0):
    for node in in_order(items):
        found = any(each.text.endswith("so it was not done again") for each in node.remarks)
        timed = node.sort in TIMED and node.began is not None and node.ended is not None and not found
        took = node.ended - node.began if timed else None
        remarks = [f"{each.tone}: {each.text}" for each in node.remarks]
        yield [
            depth,
            node.sort,
            node.state,
            node.name,
            node.input,
            node.attempts,
            node.child,
            node.dropped,
            took,
            remarks,
        ]
        if node.sort == "branch":
            yield from lines(node.items, depth + 1)


async def journals(url):
    async with holdfast.open(url) as hf:
        return {info.id: (await account(hf, info.id)).told for info in await hf.runs(limit=1000)}


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: file.parent.name)
def test_the_page_folds_a_recorded_history_into_the_tree_of_the_command_line(file, tmp_path):
    url = f"sqlite:{tmp_path}/old.db?durability=process"
    asyncio.run(bring_back(file, url))
    recorded = asyncio.run(journals(url))
    given = json.dumps({run: [told(event) for event in events] for run, events in recorded.items()})
    answer = run_node("lines.mjs", text=given)
    assert answer.returncode == 0, answer.stderr
    page = json.loads(answer.stdout)
    assert len(page) > 30
    for run, events in recorded.items():
        tree = History(events)
        assert [json.loads(line) for line in page[run]["lines"]] == list(lines(tree.items)), run
        assert page[run]["tears"] == tree.interruptions, run
        assert page[run]["next"] == tree.next_seq, run


def test_recorded_histories_have_every_kind_that_the_tree_tells():
    """The comparison is worth something: no kind is told by one of the two alone."""
    found = {kind for file in RECORDED for _, kind, _ in events_of(file)}
    assert set(History.TAKERS) - found == set()
