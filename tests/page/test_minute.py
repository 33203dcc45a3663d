"""A newcomer's minute, as docs/dashboard.md tells it: one command, a browser, a kill, and an approval on a phone."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import expect
from tests.docs.pages import block
from tests.page.browser import DESK, PHONE, Visitor
from tests.page.node import HERE
from tests.page.scene import HOLDFAST
from tests.workers import Worker

pytestmark = pytest.mark.slow

DOCS = HERE.parents[1] / "docs" / "dashboard.md"


@pytest.fixture
def developing(tmp_path):
    """`holdfast dev report.py` in an empty folder, with the page's file."""
    told = re.search(r"<!-- minute -->\n```console\n(.*?)```", DOCS.read_text(), re.DOTALL)[1]
    commands = [line[2:].split() for line in told.splitlines() if line.startswith("$ ")]
    assert commands[0] == ["pip", "install", '"holdfast[server]"']
    assert commands[1][:2] == ["holdfast", "dev"]
    Path(tmp_path, commands[1][2]).write_text(block("docs/dashboard.md", "dashboard: report"))
    env = {name: value for name, value in os.environ.items() if name != "HOLDFAST_URL"}
    process = subprocess.Popen(
        [HOLDFAST, *commands[1][1:], "--no-open", "--port", "0"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**env, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    worker = Worker(process)
    yield worker
    process.send_signal(signal.SIGINT)
    assert worker.ended() == 0


@pytest.mark.skipif(sys.platform != "linux", reason="the browser is Debian's")
def test_a_newcomer_sees_a_kill_as_a_tear_and_decides_on_a_phone(developing, browser):
    link = re.search(r"http://\S+/#code=\S+", developing.until("#code="))[0]
    pid = int(re.search(r"process (\d+)", developing.until("The worker is process"))[1])
    visitor = Visitor(browser, link.partition("/#")[0], None, size=DESK)
    page = visitor.goto(link, "text=Start one, then kill it")  # 1
    page.click("text=Start a run here")
    page.click("a:has-text('report')")
    page.fill("form.start [aria-label=topic]", "otters")
    page.fill("#start-id", "otters")
    page.click("form.start button[type=submit]")
    expect(page.locator(".tl-rows .bar.going")).to_have_count(3, timeout=20_000)  # 2
    os.kill(pid, signal.SIGKILL)  # 3
    developing.until(f"Worker {pid} was killed")
    expect(page.locator(".pill")).to_have_text(re.compile("went on after"), timeout=30_000)
    told = page.locator(".pill").get_attribute("aria-label")
    names = re.fullmatch(r"interruption: (\S+) was gone, (\S+) went on after .*", told)
    assert names and names[1] != names[2]
    rows = page.locator("[role=treeitem]").evaluate_all("rows => rows.map((row) => row.ariaLabel)")
    assert sum(each.startswith("search otters, done") for each in rows) == 1
    expect(page.locator(".tl-rows .bar.lost")).to_have_count(3)
    expect(page.locator(".badge.ask")).to_have_text("1", timeout=20_000)  # 4
    page.set_viewport_size(PHONE)
    page.click("nav a:has-text('Approvals')")
    page.click(".inbox-item:has-text('Publish this?')")
    expect(page.locator("main")).to_contain_text("what otters.example/2 says")
    page.click(".q-buttons .primary")
    page.click("dialog button[type=submit]")
    expect(page.locator(".q-meta")).to_contain_text("approved by")
    page.set_viewport_size(DESK)
    page.goto("/runs/otters")
    expect(page.locator(".run-state")).to_have_text("completed")  # 5
    page.goto("/runs/otters/data")
    expect(page.locator(".data-cols")).to_contain_text("published: what otters.example/0 says")
    visitor.leave()
