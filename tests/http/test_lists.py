"""Lists over HTTP that have pages: the audit, conversations, questions; and what refusals tell programs."""

from tests.http.site import AGENTS, on_a_server, served

import holdfast

# Where the store's part of the work differs; the other scenes are played on PostgreSQL at night.
POSTGRES_BY_DAY = {"test_questions_are_listed_by_state_page_by_page"}


@holdfast.agent
async def talk(name: str, words: list[str]) -> int:
    async with holdfast.conversation(name, str) as said:
        await said.add(*words)
        return len(words)


async def test_the_audit_is_read_page_by_page(store_url):
    """By run, by person, by action; each page goes on where the one before ended."""
    async with served(store_url) as site:
        for n in range(3):
            await site.start("listener", 1, id=f"l{n}")
            await site.post(f"/api/runs/l{n}/cancel", {"reason": f"no {n}"})
        whole = await site.get("/api/audit")
        assert whole["next"] is None
        pages, before = [], ""
        while before is not None:
            page = await site.get(f"/api/audit?limit=2{before and f'&before={before}'}")
            pages += page["deeds"]
            before = page["next"]
        assert pages == whole["deeds"]
        cancelled = await site.get("/api/audit?action=cancel&run=l1")
        (deed,) = cancelled["deeds"]
        assert (deed["by"], deed["action"], deed["run"], deed["data"]["reason"]) == ("tess", "cancel", "l1", "no 1")
        assert deed["via"].startswith("http:")
        acted = await site.get("/api/audit?by=tess&action=cancel&action=start")
        assert len(acted["deeds"]) == 6
        assert (await site.get("/api/audit?by=nobody"))["deeds"] == []


async def test_conversations_are_listed_and_read(store_url):
    """From the front, page by page, or the last of it; one that is not there is said."""
    async with served(store_url, agents=[*AGENTS, talk]) as site:
        for name in "abc":
            await site.hf.run(talk, name, [f"{name}{n}" for n in range(5)], id=f"t-{name}")
        page = await site.get("/api/conversations?limit=2")
        rest = await site.get(f"/api/conversations?after={page['next']}")
        assert [(each["id"], each["messages"]) for each in page["conversations"] + rest["conversations"]] == [
            ("a", 5),
            ("b", 5),
            ("c", 5),
        ]
        assert rest["next"] is None
        assert (await site.get("/api/conversations/b"))["conversation"] == page["conversations"][1]

        async def said(query):
            found = await site.get(f"/api/conversations/b/messages?{query}")
            return [each["value"] for each in found["messages"]], found["next"]

        assert await said("") == (["b0", "b1", "b2", "b3", "b4"], 5)
        assert await said("limit=2") == (["b0", "b1"], 2)
        assert await said("limit=2&after=4") == (["b4"], 5)
        assert await said("last=2") == (["b3", "b4"], 5)
        assert await said("last=100") == (["b0", "b1", "b2", "b3", "b4"], 5)
        assert await said("after=77") == ([], 5)
        for path in ("/api/conversations/none", "/api/conversations/none/messages"):
            told = await site.get(path, 404)
            assert told["error"]["code"] == "unknown_conversation"
        await site.get("/api/conversations/no%20id", 422)
        await site.get("/api/conversations/b/messages?last=0", 422)


async def test_questions_are_listed_by_state_page_by_page(store_url):
    """Open ones in the order asked, others from the newest on, each once; also those of one person among many."""
    async with served(store_url) as site:
        ids = []
        for n in range(7):
            run = site.hf.get(await site.start("publish" if n % 2 else "number", *(["x"] if n % 2 else []), id=f"r{n}"))
            ids.append((await run.wait_for_question(timeout="20s")).id)

        async def pages(query):
            found, after = [], ""
            while after is not None:
                page = await site.get(f"/api/approvals?limit=2&{query}{after and f'&after={after}'}")
                found += [each["id"] for each in page["approvals"]]
                after = page["next"]
            return found

        assert await pages("") == ids == await pages("status=open")
        assert await pages("to=editors") == ids
        assert await pages("mine=true") == ids[::2]
        for n in (0, 2, 4):
            await site.hf.answer(ids[n], 1, by="ana")
        assert await pages("") == [ids[1], ids[3], ids[5], ids[6]]
        assert await pages("status=decided") == [ids[4], ids[2], ids[0]]
        assert await pages("status=decided&status=open") == ids[::-1]
        assert sorted(await pages("open=false")) == sorted(ids)
        assert await pages("run=r3") == [ids[3]]
        assert await pages("status=decided&to=ana") == [ids[4], ids[2], ids[0]]
        await site.get("/api/approvals?status=none", 422)
        await site.get("/api/approvals?after=none", 404)


async def test_a_question_tells_who_changed_what(store_url):
    """Each value that somebody put in the place of what was shown, in order; a vote that changes nothing is none."""

    @holdfast.agent
    async def needs_two(text: str) -> str:
        decision = await holdfast.approve("Publish this?", show={"text": text}, edit=True, needs=2)
        return decision.data["text"]

    async with served(store_url, agents=[needs_two]) as site:
        run = site.hf.get(await site.start("needs_two", "a", id="r"))
        question = await run.wait_for_question(timeout="20s")
        assert question.changes == ()
        await site.hf.approve(question.id, by="ana")
        now = await site.hf.approval(question.id)
        assert now.changes == ()
        await site.hf.approve(now, by="bo", data={"text": "b"})
        now = await site.hf.approval(question.id)
        await site.hf.approve(now, by="cy", data={"text": "c"})
        now = await site.hf.approval(question.id)
        await site.hf.approve(now, by="di")
        assert await run.result(timeout="20s") == "c"
        found = (await site.get("/api/approvals?status=decided"))["approvals"][0]["changes"]
        assert [(each["by"], each["value"]) for each in found] == [("bo", {"text": "b"}), ("cy", {"text": "c"})]
        assert found[-1]["digest"] == now.digest
        assert found == (await site.get(f"/api/approvals/{question.id}"))["approval"]["changes"]


@on_a_server
async def test_refusals_tell_programs_what_people_read(site):
    """Who decided, whose it is, and which part does not fit; nothing where nothing is known, and never much."""
    run = site.hf.get(await site.start("publish", "x", id="p"))
    question = await run.wait_for_question(timeout="20s")
    path = f"/api/approvals/{question.id}"

    async def details(document, status, at=path):
        return (await site.post(at, document, status))["error"]["details"]

    yes = {"decision": "approve", "digest": question.digest}
    assert await details(yes, 403) == {"to": ["editors"]}
    assert await details(yes | {"data": {"text": 3}}, 403) == {"to": ["editors"]}
    editor = holdfast.Actor("eve", groups=["editors"])
    await site.hf.delegate(question.id, to="tess", by=holdfast.Actor("editors"))
    assert await details(yes | {"data": 3}, 422) == {"of": "value", "path": []}
    assert await details({"decision": "approve"}, 422) == {"of": "document", "path": ["digest"]}
    stale = await details(yes | {"digest": "0"}, 409)
    assert stale == {"digest": question.digest, "changed_by": None, "changed_at": None}
    await site.hf.approve(question.id, by="tess")
    told = await details(yes, 409)
    decided = await site.hf.approval(question.id)
    assert told.pop("decided_at")[:19] == decided.decided_at.isoformat()[:19]
    assert told == {"decision": "approved", "decided_by": "tess", "digest": question.digest}
    wrong = {"agent": "twice", "kwargs": {"n": "two"}}
    assert await details(wrong, 422, "/api/runs") == {"of": "value", "path": ["n"]}
    assert await details({"agent": "twice", "x" * 5_000: 1}, 422, "/api/runs") == {
        "of": "document",
        "path": ["x" * 199 + "…"],
    }
    assert (await site.get("/api/runs/none", 404))["error"]["details"] is None
    assert (await site.get("/api/runs?limit=x", 422))["error"]["details"] == {"of": "query", "path": ["limit"]}
    assert not question.is_for("tess") and question.is_for(editor)


@on_a_server
async def test_who_may_not_read_is_told_no_details_of_questions(site):
    run = site.hf.get(await site.start("number", id="n"))
    question = await run.wait_for_question(timeout="20s")
    _, secret = await site.hf.create_token("ana", scopes=["decide"])
    await site.hf.answer(question, 7, by="bo")
    answer = await site.bare.post(
        f"/api/approvals/{question.id}",
        json={"decision": "answer", "value": 1, "digest": question.digest},
        headers={"Authorization": f"Bearer {secret}"},
    )
    assert (answer.status_code, answer.json()["error"]["details"]) == (409, None)
