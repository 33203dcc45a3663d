"""Debian's chromium, driven by playwright: pages of people who are signed in, and what they must never do."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

expect.set_options(timeout=90_000)  # as long as a page waits for anything

FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
CHROMIUM = "/usr/bin/chromium"
FONTS = {**os.environ, "FONTCONFIG_FILE": str(Path(__file__).with_name("fonts.conf"))}  # whatever the machine prefers
DESK = {"width": 1440, "height": 900}
PHONE = {"width": 390, "height": 844}
KNOWN = ("Permissions-Policy", "Failed to load resource")  # what the browser itself says of headers and refusals


def missing(what):
    """Skip loudly, or fail where the machine must have it."""
    import pytest

    if os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(what)


@contextmanager
def chromium():
    """A browser; each page of it is somebody of their own."""
    if shutil.which(CHROMIUM) is None:
        missing("chromium is not installed, so the page is not tested: apt-get install chromium")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS), env=FONTS)
        yield browser
        browser.close()


class Visitor:
    """Somebody with a page, who is signed in; what the page complains of is in `complaints`."""

    def __init__(self, browser, address, token, *, size=DESK, dark=False):
        self.address = address
        self.complaints = []
        self.context = browser.new_context(
            viewport=size, color_scheme="dark" if dark else "light", has_touch=size is PHONE, reduced_motion="reduce",
            timezone_id="UTC", base_url=address,
        )  # fmt: skip
        self.context.set_default_timeout(90_000)
        self.page = self.context.new_page()
        self._asked = set()  # requests without an answer; streams have none
        self.page.on("request", lambda request: request.resource_type == "eventsource" or self._asked.add(request))
        self.page.on("requestfinished", self._answered)
        self.page.on("requestfailed", self._answered)
        self.page.on("pageerror", lambda error: self.complaints.append(f"{error}\n{error.stack}"))
        self.page.on("console", self._heard)
        if token:
            self.sign_in(token)

    def _answered(self, request):
        self._asked.discard(request)

    def _heard(self, message):
        if message.type in ("error", "warning") and not any(each in message.text for each in KNOWN):
            self.complaints.append(message.text)

    def sign_in(self, token):
        """Begin a session as the page does; `test_sign_in.py` fills in the form itself."""
        answer = self.context.request.post(
            "/session", data={"token": token}, headers={"X-Holdfast-Page": "1", "Origin": self.address}
        )
        assert answer.status == 201, answer.text()

    def goto(self, path, wanted):
        """Open a path and wait for an element of it, and for all that the page reads and draws then."""
        self._asked.clear()  # the page that was left waits for nothing
        self.page.goto(path)
        self.page.wait_for_selector(wanted)
        self.settle()
        return self.page

    def settle(self):
        """Wait until the page has every answer it asked for and has drawn it, however slow the machine is."""
        quiet = 0
        while quiet < 2:  # an answer may lead to another question
            self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 20)))")
            quiet = 0 if self._asked else quiet + 1

    def leave(self):
        assert self.complaints == [], self.complaints
        self.context.close()
