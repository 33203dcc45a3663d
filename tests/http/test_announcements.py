"""Announcements over HTTP: published once, refused with what is wrong."""

from tests.http.site import on_a_server


@on_a_server
async def test_an_announcement_is_published_once(site):
    document = {"name": "order.paid", "value": {"order": 7}, "key": "payment-31"}
    first = await site.post("/api/events", document, 200)
    assert first["name"] == "order.paid"
    assert await site.post("/api/events", document, 200) == first
    assert (await site.post("/api/events", {"name": "order.paid"}, 200))["id"] != first["id"]


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
