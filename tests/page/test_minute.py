"""A newcomer's minute, as docs/dashboard.md tells it: one command, a browser, a kill, and an approval on a phone."""

import os
import re
import shutil
import signal
import subprocess
import sys

import pytest
from playwright.sync_api import expect
from tests.page.browser import DESK, PHONE, Visitor
from tests.page.node import HERE
from tests.page.scene import HOLDFAST
from tests.workers import Worker

pytestmark = pytest.mark.slow

ROOT = HERE.parents[1]
SAID = "I want my money back for order 101"
ASKED = "Agent 'clerk' wants to call the tool 'refund'. May it?"
SEEN_BEFORE_THE_TEAR = """() => {
    const [hatched, torn] = [".tl-rows .bar.lost", ".tl-paper.over path.gap"].map((each) => document.querySelector(each));
    return hatched && torn && torn.getBoundingClientRect().x - hatched.getBoundingClientRect().x > 15;
}"""


@pytest.fixture
def developing(tmp_path):
    """The command of the page, in a folder that has the examples and nothing else."""
    told = re.search(r"<!-- minute -->\n```console\n(.*?)```", (ROOT / "docs" / "dashboard.md").read_text(), re.DOTALL)[
        1
    ]
    install, command = [line[2:].split() for line in told.splitlines() if line.startswith("$ ")]
    assert install[:3] == ["pip", "install", "-e"]
    assert command[:3] == ["holdfast", "dev", "examples/support/agents.py"]
    assert " ".join(command) in " ".join((ROOT / "README.md").read_text().split())
    shutil.copytree(ROOT / "examples" / "support", tmp_path / "examples" / "support")
    env = {name: value for name, value in os.environ.items() if name not in ("HOLDFAST_URL", "SHOP_URL", "MODEL_URL")}
    process = subprocess.Popen(
        [HOLDFAST, *command[1:], "--no-open", "--port", "0"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**env, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    worker = Worker(process)
    yield worker
    process.send_signal(signal.SIGINT)
    assert worker.ended() == 0


def rows(page):
    """What the timeline says of each call."""
    return page.locator("[role=treeitem]").evaluate_all("rows => rows.map((row) => row.ariaLabel)")


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="the browser is Debian's")
def test_a_newcomer_sees_a_kill_as_a_tear_and_decides_on_a_phone(developing, browser):
    link = re.search(r"http://\S+/#code=\S+", developing.until("#code="))[0]
    pid = int(re.search(r"process (\d+)", developing.until("The worker is process"))[1])
    visitor = Visitor(browser, link.partition("/#")[0], None, size=DESK)
    page = visitor.goto(link, "text=Start one, then kill it")  # 1
    page.click("text=Start a run here")
    page.click("a:has-text('support')")
    for name, value in (("customer", "ana"), ("key", "1"), ("text", SAID)):
        page.fill(f"form.start [aria-label={name}]", value)
    page.fill("#start-id", "ana-1")
    page.click("form.start button[type=submit]")
    expect(page.locator("[role=treeitem][aria-label^='find_order 101, done']")).to_have_count(1, timeout=30_000)  # 2
    expect(page.locator(".tl-rows .bar.going")).to_have_count(1, timeout=20_000)
    os.kill(pid, signal.SIGKILL)  # 3
    developing.until(f"Worker {pid} was killed")
    expect(page.locator(".tl-rows .bar.lost")).to_have_count(1, timeout=60_000)  # what was blue is hatched
    expect(page.locator(".pill")).to_have_text(re.compile("went on within"), timeout=60_000)
    told = page.locator(".pill").get_attribute("aria-label")
    names = re.fullmatch(r"interruption: (\S+) was gone, (\S+) went on within .*", told)
    assert names and names[1] != names[2]
    expect(page.locator(".badge.ask")).to_have_text("1", timeout=30_000)  # 4
    before = [each.split(",")[0] for each in rows(page)]
    assert before[1:4] == [f"model {SAID}", "find_order 101", "model find_order"]  # each once
    assert "lost with its process" in rows(page)[3] and "ran again" in rows(page)[3]
    expect(page.locator(".tl-rows .bar.lost")).to_have_count(1)
    page.wait_for_function(SEEN_BEFORE_THE_TEAR)  # in one look, because what goes on is drawn anew
    page.set_viewport_size(PHONE)
    page.click("nav a:has-text('Approvals')")
    page.click(f'.inbox-item:has-text("{ASKED}")')
    expect(page.locator("main")).to_contain_text("for supervisors")
    page.click(".q-buttons .primary")
    page.click("dialog button[type=submit]")
    expect(page.locator(".q-meta")).to_contain_text("approved by")
    page.set_viewport_size(DESK)
    page.goto("/runs/ana-1")
    expect(page.locator(".run-state")).to_have_text("completed", timeout=30_000)  # 5
    page.goto("/runs/ana-1/data")
    expect(page.locator(".data-cols")).to_contain_text("About order 101: 40 paid back to ana")
    visitor.leave()
