"""The fuzzers themselves: they find what is there, make it small, and hunt in every target: a little here, more by night."""

import time
from collections import Counter

import pytest
from tests.security.fuzz import TARGETS
from tests.security.fuzzers import hunting
from tests.security.fuzzers.http import hunt_http
from tests.security.fuzzers.hunting import dice_of
from tests.security.fuzzers.inputs import document
from tests.security.fuzzers.requests import OTHERS, ROUTES, Requests

import holdfast
from holdfast.http.app import application
from holdfast.http.auth import Tokens
from holdfast.http.follow import Followers
from holdfast.http.oidc import Provider
from holdfast.http.paths import PATHS

SEED = 20261116


class Faulty:
    """Something with a fault: `planted` is what it does about a list with a 7 in it."""

    name = "faulty"

    def __init__(self, planted):
        self.seen, self._planted = Counter(), planted

    def make(self, dice):
        return [dice.randint(0, 300) for _ in range(20)], document(dice)

    def check(self, case):
        if 7 in case[0]:
            self._planted()


def fault():
    raise KeyError("never told")


def wait():
    until = time.process_time() + 0.06
    while time.process_time() < until:
        pass


def stay():
    while True:
        pass


@pytest.mark.parametrize("planted", [fault, wait, stay])
def test_a_fault_is_found_and_made_small(planted, monkeypatch):
    """What is raised, what takes too long and what never ends; the same from the same seed."""
    monkeypatch.setattr(hunting, "LONGEST_S", 0.05)
    monkeypatch.setattr(hunting, "STUCK_S", 0.1)
    monkeypatch.setattr(hunting, "SMALLER_S", 60 if planted is fault else 0.5)
    found = [hunting.hunt(Faulty(planted), 0.05, SEED).findings for _ in range(2 if planted is fault else 1)]
    assert len(found[0]) == 1, found
    ((kind, shown),) = found[0].items()
    assert ("KeyError at test_fuzzed.py" if planted is fault else "Slow") in kind
    assert planted is not fault or (found[0] == found[1] and "([7], " in shown)


@pytest.mark.parametrize("name", [name for name in TARGETS if not name.startswith("http")])
def test_a_little_of_each(name):
    report = TARGETS[name](0.7, SEED)
    assert not report.findings, report
    assert report.cases
    assert sum(report.seen.values()) >= report.cases


@pytest.mark.timeout(120)
def test_a_little_of_requests(store_url, commands):
    """So many requests, however busy the computer is: what is found does not depend on how many there was time for."""
    kind = "sqlite" if store_url.startswith("sqlite:") else "postgres"
    report = hunt_http(kind, 60, SEED, store_url, commands.start, requests=400)
    assert not report.findings, report
    assert report.cases == 400
    assert report.seen["answers 200"]
    assert report.seen["answers 403"]


def test_every_route_is_fuzzed(tmp_path):
    """Those of the table by themselves; what the application has beside them is listed."""
    client = holdfast.open(f"sqlite:{tmp_path}/runs.db")
    provider = Provider.parse("http://127.0.0.1", "x", ["*=read"])
    routes = application(client, Tokens(client), Followers(), provider).routes
    table = {each.route for each in PATHS}
    served = {
        (method, route.path) for route in routes if route.path not in table for method in route.methods - {"HEAD"}
    }
    assert {(method, path.replace(":path}", "}")) for method, path in served} == {
        (method, path.replace(":path}", "}")) for method, path in OTHERS
    }
    made = Requests(["done"], ["operator"])
    assert {made.make(dice_of(SEED, "routes", number)).route for number in range(5_000)} == set(ROUTES)
