"""What the tests of the page share: a browser, and a scene that is made once and left as it was found."""

import pytest
from tests.page.browser import DESK, PHONE, Visitor, chromium
from tests.page.scene import scene


@pytest.fixture(scope="session")
def stage(tmp_path_factory):
    """A store with a run in every state, workers that carry them, and a server."""
    with scene(tmp_path_factory.mktemp("scene")) as made:
        yield made


@pytest.fixture(scope="module")
def browser():
    """A browser for a module: its driver has a loop in this thread, in which tests of other modules run theirs."""
    with chromium() as made:
        yield made


@pytest.fixture
def visit(stage, browser):
    """Somebody who visits: `visit("ana")`, `visit("bo", phone=True)`, `visit(None)` for a stranger."""
    here = []

    def come(name, *, phone=False, dark=False, size=None):
        visitor = Visitor(
            browser, stage.address, stage.tokens.get(name), size=size or (PHONE if phone else DESK), dark=dark
        )
        here.append(visitor)
        return visitor

    yield come
    for each in here:
        each.leave()
