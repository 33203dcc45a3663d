"""Announcements over HTTP: published once, refused with what is wrong."""

from datetime import datetime

from tests.http.site import on_a_server


@on_a_server
async def test_an_announcement_is_published_once(site):
    document = {"name": "order.paid", "value": {"order": 7}, "key": "payment-31"}
    first = await site.post("/api/events", document, 201)
    assert (first["name"], first["created"], first["before"], first["differs"]) == ("order.paid", True, None, False)
    again = await site.post("/api/events", document, 200)
    assert (again["id"], again["created"], again["differs"]) == (first["id"], False, False)
    assert datetime.fromisoformat(again["before"]).tzinfo is not None
    assert (await site.post("/api/events", {**document, "value": 8}, 200))["differs"] is True
    assert (await site.post("/api/events", {"name": "order.paid"}, 201))["id"] != first["id"]


@on_a_server
async def test_wrong_announcements_are_refused(site):
    for document, told in (
        ({"name": "a b"}, "cannot name an announcement"),
        ({"name": "a", "value": "x" * 70_000}, "publish its address"),
        ({"name": "a", "key": ""}, "key=''"),
        ({"value": 1}, "name: it is missing"),
    ):
        refused = await site.post("/api/events", document, 422)
        assert told in str(refused), refused
