"""What agents, callers and people wrote is shown, never run: through every text field of lists, questions and audits."""

import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.slow

ATTACKS = (
    "<img src=x onerror=window.hit=1>", "<script>window.hit=1</script>", '"><svg onload=window.hit=1>', "javascript:window.hit=1",
    "{{constructor.constructor('window.hit=1')()}}", "</textarea><iframe srcdoc='<script>parent.hit=1</script>'>",
    "https://evil.example/beacon.png", "' onmouseover='window.hit=1",
)  # fmt: skip
TURNED = "pay \u202e100\u202c\u200b EUR"
OURS = r"""
() => { const LENGTHS = /^(\s*(--[\w-]+|left|right|top|bottom|width|height|max-height|transform)\s*:[^;]*;?)*$/;
return [...document.querySelectorAll('*')].filter((each) => ['IMG', 'IFRAME', 'OBJECT', 'EMBED', 'VIDEO', 'AUDIO', 'FORM']
    .includes(each.tagName) && !each.closest('.sign-in, .start-place, .audit-filter')
  || [...each.attributes].some((one) => one.name.startsWith('on') || (one.name === 'style' && !LENGTHS.test(one.value)))
  || (each.tagName === 'SCRIPT' && !each.src)).map((each) => each.outerHTML.slice(0, 200)); }
"""


@pytest.fixture(scope="module")
def attacked(stage):
    """Runs whose every text is an attack."""

    async def begin(hf):
        for at, text in enumerate((*ATTACKS, TURNED)):
            run = await hf.acting_as("mallory").start(
                "refund", 1.0, id=f"attack-{at}", labels={"note": text, f"l{at}": text}
            )
            question = await run.wait_for_question()
            await hf.deny(question, by="mallory", note=text)
            await hf.start("shout", text, id=f"shout-{at}", labels={"note": text})
            await hf.get(f"shout-{at}").wait_for_question()
        await hf.get("paused-1").send("odd", ATTACKS[0])

    stage.act(begin)


def visited(page, path, wanted):
    page.goto(path)
    page.wait_for_selector(wanted)
    page.wait_for_timeout(300)  # for what the browser would do by itself
    assert page.evaluate("window.hit") is None
    assert page.evaluate(OURS) == []


def test_no_text_becomes_markup_code_or_a_request(stage, visit, attacked):
    ana = visit("ana")
    page = ana.page
    foreign = []
    page.on("request", lambda request: None if request.url.startswith(stage.address) else foreign.append(request.url))
    page.on("dialog", lambda dialog: foreign.append(dialog.message))
    visited(page, "/runs?q=attack", "tr[data-row]")
    expect(page.locator(".label").first).to_be_visible()
    visited(page, "/runs?q=shout", "tr[data-row]")
    visited(page, "/approvals", ".inbox-item")
    for at in range(len(ATTACKS)):
        (question,) = stage.act(lambda hf, at=at: hf.approvals(run=f"shout-{at}"))
        visited(page, f"/approvals/{question.id}", ".q-head h1")
        expect(page.locator(".q-head h1")).to_have_text(ATTACKS[at])
        visited(page, f"/runs/shout-{at}", "main h1")
    visited(page, "/audit", ".deed")
    page.fill("#find", ATTACKS[0])
    page.wait_for_timeout(500)
    assert page.evaluate(OURS) == []
    assert foreign == []


def test_what_cannot_be_seen_or_turns_the_reading_is_shown_as_its_number(stage, visit, attacked):
    page = visit("ana").goto(f"/runs?q=attack-{len(ATTACKS)}", "tr[data-row]")
    expect(page.locator(".labels").first).to_contain_text("pay ⟨U+202E⟩100⟨U+202C⟩⟨U+200B⟩ EUR")
    (question,) = stage.act(lambda hf: hf.approvals(run=f"shout-{len(ATTACKS)}"))
    page.goto(f"/approvals/{question.id}")
    expect(page.locator(".q-head h1")).to_have_text("pay ⟨U+202E⟩100⟨U+202C⟩⟨U+200B⟩ EUR")
