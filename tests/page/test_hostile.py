"""What agents, senders, people and workers wrote is shown and nothing else, in every view: the corpus goes through every field."""

import pytest
from tests.page.browser import Visitor
from tests.page.scene import bare, served

import holdfast

pytestmark = pytest.mark.slow

CORPUS = (
    "<img src=x onerror=window.hit=1>", "<script>window.hit=1</script>", "<svg/onload=window.hit=1>", "<body onpageshow=hit=1>",
    "'\"><iframe srcdoc='<script>parent.hit=1</script>'>", "</title></textarea></style></script><math><mi//xlink:href='data:x'>",
    "<a href=javascript:window.hit=1>x</a>", "<style>@import'//evil.example/a.css'</style>", "<base href=//evil.example/>",
    "<link rel=stylesheet href=//evil.example/b.css>", "<meta http-equiv=refresh content=0;url=//evil.example>",
    "{{constructor.constructor('window.hit=1')()}}", "${window.hit=1}", "]]><!--><img src=//evil.example/c.png>",
    "%3Cscript%3Ewindow.hit=1%3C/script%3E", "&lt;script&gt;window.hit=1&lt;/script&gt;", "\\u003cscript\\u003e", "__proto__",
    "[x](javascript:window.hit=1)", "![x](https://evil.example/d.png)", "`;window.hit=1;`", "../../api/runs", "\u2028window.hit=1",
)  # fmt: skip
TEXTS = {
    "all": " ".join(CORPUS),
    "link": "javascript:window.hit=1//https://evil.example/beacon.png",
    "turned": "pay \u202e001\u202c \u2066EUR\u2069 to\u200b ana\u0000\u001b[31m \U000e0041\ufeff\u00ad",
}
WORKER = "<img-src=x-onerror=hit=1>"
POLICY = "window.broken = []; addEventListener('securitypolicyviolation', (event) => window.broken.push(event.violatedDirective));"
OURS = r"""
() => { const LENGTHS = /^(\s*(--[\w-]+|left|right|top|bottom|width|height|max-height|transform)\s*:[^;]*;?)*$/;
return [...document.querySelectorAll('*')].filter((each) => ['IMG', 'IFRAME', 'OBJECT', 'EMBED', 'VIDEO', 'AUDIO', 'FORM']
    .includes(each.tagName) && !each.closest('.sign-in, .start-place, .audit-filter, .cmp-choose')
  || [...each.attributes].some((one) => one.name.startsWith('on') || (one.name === 'style' && !LENGTHS.test(one.value)))
  || (each.tagName === 'SCRIPT' && !each.src)).map((each) => each.outerHTML.slice(0, 200)); }
"""
HIDDEN = r"""() => {
  const bad = /[\u202a-\u202e\u2066-\u2069\u200b\u0000-\u0008\u001b\ufeff\u00ad\u{e0041}]/u, found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode());) {
    if (bad.test(node.textContent)) found.push(node.parentElement.outerHTML.slice(0, 200));
  }
  for (const each of document.querySelectorAll('[title], [aria-label]')) {
    if (bad.test(each.title) || bad.test(each.ariaLabel ?? '')) found.push(each.outerHTML.slice(0, 200));
  }
  return found;
}"""


questions = {}  # by the name of the text


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A store whose every text is the corpus: labels, topics, questions, notes, errors, streams, plans, conversations."""
    with bare(tmp_path_factory.mktemp("hostile")) as made:
        made.worker("mallory", "hostile.py")
        made.act(lambda hf: served(hf, "echo"))
        questions.update(made.act(fill))
        yield made


async def fill(hf):
    asked, mallory = {}, hf.acting_as("mallory")
    for name, text in TEXTS.items():
        if name == "turned":
            text = text.replace("\u0000", "")  # a text with it is refused, by name
        labels = {"note": text[:200]}
        run = await mallory.start("echo", text, id=name, labels=labels)
        await mallory.get(name).send(text[:150], text)
        question = await run.wait_for_question()
        await hf.approve(question, by=holdfast.Actor("bo"), note=text)
        await hf.delegate(question, to=text.replace("\n", " ")[:60], by="ana", note=text) if name == "link" else None
        asked[name] = question.id
        await mallory.start("fall", text, id=f"fall-{name}", labels=labels)
        await hf.get(f"fall-{name}").wait("failed")
        waits = await mallory.start("echo", text, id=f"gone-{name}", labels=labels)
        await waits.cancel(by="mallory", reason=text)
        with_it = await mallory.start("echo", text, id=f"still-{name}", labels=labels)
        await with_it.pause(by="mallory", reason=text)
    return asked


class Walk:
    """Somebody who goes through views, and what a text did there that it must not."""

    def __init__(self, browser, place, **options):
        self.visitor = Visitor(browser, place.address, place.tokens["ana"], **options)
        self.page, self.foreign, self.wrong, self.place = self.visitor.page, [], [], place
        self.page.add_init_script(POLICY)
        self.page.on("request", self._asked)
        self.page.on("dialog", lambda dialog: (self.foreign.append(dialog.message), dialog.dismiss()))
        self.page.on("popup", lambda popup: self.foreign.append(popup.url))

    def _asked(self, request):
        if not request.url.startswith((self.place.address, "data:", "blob:")):
            self.foreign.append(request.url)

    def to(self, path, wanted):
        self.page.goto(path)
        self.page.wait_for_selector(wanted)
        self.look(path)

    def look(self, where):
        """Wait for what the browser would do by itself, then see what is there."""
        self.page.wait_for_function("() => document.querySelectorAll('.ghost').length === 0")
        self.visitor.settle()
        hit, broken = self.page.evaluate("[window.hit ?? null, window.broken]")
        found = self.page.evaluate(OURS) + self.page.evaluate(HIDDEN)
        titled = self.page.evaluate("[...document.title].some((each) => /[\\u202e\\u200b]/.test(each))")
        if hit or broken or found or titled:
            self.wrong.append((where, hit, broken, found, titled))

    def done(self):
        assert not self.wrong, "\n".join(map(repr, self.wrong))
        assert self.foreign == []
        self.visitor.leave()


def rows(walk, selector, most=8):
    """Choose rows one after the other, and look at what is said of each."""
    for nth in range(min(walk.page.locator(selector).count(), most)):
        walk.page.locator(selector).nth(nth).click()
        walk.look(f"{walk.page.url} {nth}")


@pytest.mark.by_day("all")
@pytest.mark.parametrize("name", TEXTS)
def test_no_text_does_anything_in_any_view(place, browser, name):
    walk = Walk(browser, place)
    walk.to("/runs", "tr[data-row]")
    walk.to(f"/runs/{name}", "[role=treeitem]")
    rows(walk, "[role=treeitem]")
    walk.to(f"/runs/{name}/journal", ".ev-row[data-seq]")
    rows(walk, ".ev-row[data-seq]", 12)
    walk.to(f"/runs/{name}/conversation", ".turn")
    walk.to(f"/runs/{name}/data", ".data-block")
    walk.to(f"/runs/{name}/streams", ".stream-list button")
    walk.to(f"/runs/{name}/audit", ".deed")
    walk.to(f"/runs/fall-{name}", ".side .trace")
    walk.to(f"/approvals/{questions[name]}", ".q-head h1")
    walk.to("/conversations", "[data-row]")
    walk.page.locator("[data-row] a").first.click()
    walk.look("conversation")
    walk.to("/audit", ".deed")
    walk.to("/agents/echo", ".start")
    walk.to("/fleet", "main h1")
    walk.to(f"/compare?a={name}&b=fall-{name}", "main h1")
    walk.page.fill("#find", TEXTS[name][:40])
    walk.page.wait_for_selector(".found-foot")
    walk.look("find")
    walk.done()


@pytest.mark.by_day("all")
@pytest.mark.parametrize("name", TEXTS)
def test_no_text_does_anything_on_a_phone(place, browser, name):
    walk = Walk(browser, place, size={"width": 390, "height": 844})
    walk.to("/runs", "[data-row]")
    walk.to(f"/runs/{name}", ".dw-row")
    walk.to(f"/approvals/{questions[name]}", ".q-head h1")
    walk.done()


def test_characters_that_cannot_be_seen_are_shown_where_they_stand(place, browser):
    """In the order in which they are stored, in a question, a label, a row of the timeline and the journal."""
    visitor = Visitor(browser, place.address, place.tokens["ana"])
    marked = "pay ⟨U+202E⟩001⟨U+202C⟩ ⟨U+2066⟩EUR⟨U+2069⟩ to⟨U+200B⟩ ana"
    page = visitor.goto(f"/approvals/{questions['turned']}", ".q-head h1")
    assert page.locator(".q-head h1").text_content().startswith(marked)
    page = visitor.goto("/runs/turned", "[role=treeitem]")
    assert any(
        marked in each
        for each in page.locator("[role=treeitem]").evaluate_all("all => all.map((each) => each.ariaLabel)")
    )
    visitor.goto("/runs/turned/journal", ".ev-row[data-seq]")
    assert marked in page.locator(".ev-rows").text_content()
    visitor.leave()


def test_a_worker_and_a_run_cannot_be_called_so(place):
    """Names that stand in addresses and logs have letters, digits and a few signs, so these two fields have no corpus."""
    refused = place.worker(WORKER, "hostile.py")
    assert refused.wait(30) != 0
    assert "a worker's name is up to 40 letters" in (place.folder / f"{WORKER}.log").read_text()
    for text in CORPUS:
        if not text.isidentifier():
            with pytest.raises(holdfast.BadArguments):
                place.act(lambda hf, text=text: hf.start("echo", "x", id=text))


def test_a_file_that_is_downloaded_has_a_name_of_ours(place, browser):
    """Whatever a value is called or holds, it comes as bytes to be kept, never as a page to be shown."""
    visitor = Visitor(browser, place.address, place.tokens["ana"])
    events = visitor.context.request.get("/api/runs/all/events?limit=100").json()["events"]
    seq = next(each["seq"] for each in events if each["kind"] == "step.completed")
    answer = visitor.context.request.get(f"/api/runs/all/events/{seq}/value")
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-disposition"] == f'attachment; filename="all-{seq}.json"'
    visitor.leave()
