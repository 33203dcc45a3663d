"""Notifications over HTTP: made, listed, steered, tried; and what is refused. Scopes are tested for all paths in test_auth."""

from tests.http.site import on_a_server

URL = "https://example.com/hooks/hidden"
OPS = {"url": URL, "kinds": ["run.failed", "budget"], "secret": "env:HOLDFAST_NOTIFY_SECRET_SITE"}


@on_a_server
async def test_made_steered_and_tried(site):
    made = (await site.post("/api/notifications/ops", {**OPS, "agent": "twice", "labels": {"a": "b"}}))["notification"]
    assert (made["name"], made["url"], made["agent"], made["labels"]) == (
        "ops",
        "https://example.com/…",
        "twice",
        {"a": "b"},
    )
    assert made["kinds"] == ["run.failed", "budget.low", "budget.reached"]
    message = (await site.post("/api/notifications/ops/test", {}))["message"]
    (delivery,) = (await site.get("/api/notifications/ops/deliveries?limit=5"))["deliveries"]
    assert delivery["id"] == message
    replayed = (await site.post("/api/notifications/ops/replay", {"id": message}))["delivery"]
    assert (replayed["id"], replayed["status"]) == (message, "new")
    assert (await site.post("/api/notifications/ops/pause", {}))["notification"]["state"] == "paused"
    assert (await site.post("/api/notifications/ops/test", {}, 422))["error"]["code"] == "bad_arguments"
    assert (await site.post("/api/notifications/ops/resume", {}))["notification"]["state"] == "active"
    (listed,) = (await site.get("/api/notifications"))["notifications"]
    assert listed | {"lag_s": 0} == (await site.get("/api/notifications/ops"))["notification"] | {"lag_s": 0}
    assert "hidden" not in str(listed)
    assert (await site.web.delete("/api/notifications/ops")).json() == {"deleted": "ops"}
    (deed, *_) = await site.hf.audit(action="delete_notification")
    assert deed.via.startswith("http:")


@on_a_server
async def test_what_is_refused(site):
    assert (await site.get("/api/notifications/nobody", 404))["error"]["code"] == "unknown_notification"
    for path, body in (("pause", {}), ("resume", {}), ("test", {}), ("replay", {"id": "x"})):
        await site.post(f"/api/notifications/nobody/{path}", body, 404)
    await site.get("/api/notifications/nobody/deliveries", 404)
    for wrong in (
        {"url": "ftp://hidden"}, {"url": "https://u:hidden@x/"}, {"kinds": []}, {"kinds": ["nonsense"]}, {"secret": "whsec_hidden"},
        {"secret": None}, {"format": "slack"}, {"base_url": "x"}, {"labels": {"a": 1}}, {"allow_private": True},
    ):  # fmt: skip
        assert "hidden" not in str(await site.post("/api/notifications/ops", OPS | wrong, 422))
    await site.post("/api/notifications/a b", OPS, 422)
    assert (await site.get("/api/notifications"))["notifications"] == []


@on_a_server
async def test_a_caller_names_no_variable_that_is_not_meant_for_it(site, monkeypatch):
    """Its own names or those that the operator lists; the settings of Holdfast, whose names begin alike, are none of them."""
    chat = {"kinds": ["run.failed"], "format": "slack"}
    others = (
        OPS | {"secret": "env:DATABASE_PASSWORD"}, OPS | {"secret": ["env:HOLDFAST_NOTIFY_SECRET", "env:OPS_SECRET"]},
        OPS | {"secret": "env:HOLDFAST_URL"}, OPS | {"secret": "env:HOLDFAST_NOTIFY_SECRETS"},
        OPS | {"secret": "env:holdfast_notify_secret_a"},
        OPS | {"secret": "env:HOLDFAST_NOTIFY_URL_CHAT"}, OPS | {"url": "env:HOLDFAST_NOTIFY_SECRET_SITE"},
        chat | {"url": "env:SLACK_URL"}, chat | {"url": "env:HOLDFAST_NOTIFY_NETWORKS"}, chat | {"url": "env:HOLDFAST_SMTP_URL"},
    )  # fmt: skip
    for body in others:
        refused = (await site.post("/api/notifications/ops", body, 403))["error"]
        assert refused["code"] == "not_allowed"
        assert "HOLDFAST_NOTIFY_VARIABLES=" in refused["message"]
    assert (await site.get("/api/notifications"))["notifications"] == []
    await site.post(
        "/api/notifications/ops", OPS | {"secret": ["env:HOLDFAST_NOTIFY_SECRET", "env:HOLDFAST_NOTIFY_SECRET_B"]}
    )
    await site.post("/api/notifications/chat", chat | {"url": "env:HOLDFAST_NOTIFY_URL_CHAT"})
    monkeypatch.setenv("HOLDFAST_NOTIFY_VARIABLES", "OPS_SECRET, SLACK_URL")
    await site.post("/api/notifications/ops", OPS | {"secret": "env:OPS_SECRET"})
    await site.post("/api/notifications/chat", chat | {"url": "env:SLACK_URL"})
    await site.post("/api/notifications/ops", OPS | {"secret": "env:OPS_SECRETS"}, 403)
    assert (await site.hf.notify(URL, "run.failed", secret="env:ANYTHING", name="code")).name == "code"
