"""The dashboard's files: the document at each of its addresses, what may be asked of it, and what is never sent."""

import gzip
import re
from functools import partial

from starlette.applications import Starlette
from starlette.routing import Mount, Route
from starlette.testclient import TestClient
from tests.http.site import on_a_server

from holdfast.http.page import FOLDER, HEADERS, PAGES, Page
from holdfast.http.paths import PATHS

OPENED = (
    "/", "/runs", "/runs?status=failed&q=x", "/runs/a-1", "/runs/a-1?at=3", "/runs/a/conversation", "/runs/a/journal",
    "/runs/a/data", "/runs/a/streams", "/runs/a/streams/answer", "/runs/a/streams/a/b", "/runs/a/audit", "/approvals",
    "/approvals/q-1",
    "/compare?a=1&b=2", "/fleet", "/fleet/host:1/x", "/agents", "/agents/a.b", "/conversations", "/conversations/c/1", "/audit",
    "/schedules", "/schedules/a/b", "/sign-in",
)  # fmt: skip


@on_a_server
async def test_every_address_of_the_dashboard_is_the_same_document(site):
    """Without a credential, because it tells nothing; under the policy that no text becomes markup and nothing foreign is asked.

    Its links alone are those of its view.
    """
    documents, named = set(), set()
    for path in OPENED:
        answer = await site.bare.get(path)
        assert answer.status_code == 200, path
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        named |= set(re.findall(r"<link .*\n", answer.text))
        documents.add(re.sub(r"<link .*\n", "", answer.text))
        policy = answer.headers["content-security-policy"]
        for part in (
            "default-src 'none'", "script-src 'self'", "require-trusted-types-for 'script'", "trusted-types 'none'",
            "frame-ancestors 'none'", "form-action 'none'", "connect-src 'self'",
        ):  # fmt: skip
            assert part in policy.split("; ")
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
        assert "camera=()" in answer.headers["permissions-policy"]
        assert answer.headers["x-holdfast-version"] and answer.headers["date"]
    (document,) = documents
    assert '<base href="/">' in document
    assert not re.search(r'\b(src|href)="(https?:)?//', document + "".join(named))
    for name in re.findall(r'href="(.*?)"', "".join(named)):
        assert (await site.bare.get(f"/{name}")).status_code == 200, name
    assert len(OPENED) >= len(PAGES)
    for path, accepted, kind in (
        ("/runs/a/nothing", "*/*", "json"),
        ("/nowhere", "text/html,*/*", "html"),
        ("/api/nowhere", "text/html", "json"),
    ):
        answer = await site.bare.get(path, headers={"Accept": accepted})
        assert answer.status_code == 404 and kind in answer.headers["content-type"]
    assert (await site.bare.post("/runs")).status_code == 405


@on_a_server
async def test_a_file_is_sent_once_and_asked_for_again(site):
    """ETag, If-None-Match, gzip and its refusal; each form of a file has its own tag."""
    plain = await site.bare.get("/static/index.html", headers={"Accept-Encoding": "identity"})
    assert (plain.status_code, plain.content) == (200, (FOLDER / "index.html").read_bytes())
    small = await site.bare.get("/static/index.html", headers={"Accept-Encoding": "gzip"})
    assert small.headers["content-encoding"] == "gzip" and small.text == plain.text
    assert "content-encoding" not in plain.headers
    assert small.headers["etag"] != plain.headers["etag"] and small.headers["vary"] == "Accept-Encoding"
    refused = await site.bare.get("/static/index.html", headers={"Accept-Encoding": "gzip;q=0"})
    assert "content-encoding" not in refused.headers
    for tags in (plain.headers["etag"], f'"x", W/{plain.headers["etag"]}', "*"):
        same = await site.bare.get("/static/index.html", headers={"If-None-Match": tags, "Accept-Encoding": "identity"})
        assert (same.status_code, same.content) == (304, b"")
        assert same.headers["etag"] == plain.headers["etag"]
    other = await site.bare.get("/static/index.html", headers={"If-None-Match": '"x"'})
    assert other.status_code == 200
    head = await site.bare.head("/static/index.html")
    assert (head.status_code, head.content) == (200, b"")


@on_a_server
async def test_what_a_browser_may_open_by_itself_has_the_policy(site):
    """Of a script or a sheet its document's policy holds; both are told to be what they say, and to be for this site alone."""
    for name, has_policy in (("index.html", True), ("mark.svg", True), ("js/app.js", False), ("css/base.css", False)):
        answer = await site.bare.get(f"/static/{name}")
        assert ("content-security-policy" in answer.headers, "permissions-policy" in answer.headers) == (
            has_policy,
        ) * 2
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert answer.headers["referrer-policy"] == "no-referrer"


def app(folder):
    page = Page(folder)
    routes = [Route("/static/{path:path}", page.static), Route("/runs", partial(page.document, ("views/runs",)))]
    return Starlette(routes=[*routes, Mount("/in/here", routes=routes)])


def test_nothing_outside_the_folder_is_sent(tmp_path):
    """Neither by dots, slashes, encodings or links, nor what is no file for a browser."""
    folder = tmp_path / "static"
    (folder / "js").mkdir(parents=True)
    (folder / "js" / "app.js").write_text("1")
    (folder / ".hidden.js").write_text("secret")
    (folder / "page.py").write_text("secret")
    (tmp_path / "other.js").write_text("secret")
    (folder / "link.js").symlink_to(tmp_path / "other.js")
    web = TestClient(app(folder))
    found = web.get("/static/js/app.js")
    assert (found.status_code, found.text) == (200, "1")
    assert found.headers["content-type"] == "text/javascript; charset=utf-8"
    for name in (
        "..%2fother.js", "%2e%2e/other.js", "js/..%2f..%2fother.js", "js%2f%2e%2e%2f%2e%2e%2fother.js", "%2fetc%2fpasswd",
        f"{tmp_path}/other.js", "..%5cother.js", "js/app.js%00", ".hidden.js", "page.py", "link.js", "js", "js/", "", "js//app.js",
        "none.js", "./js/app.js%2f..",
    ):  # fmt: skip
        answer = web.get(f"/static/{name}")
        assert answer.status_code == 404 and "secret" not in answer.text, name


def test_a_mounted_page_knows_where_it_is(tmp_path):
    """The one line that is filled in, also where the path of the mount is markup; a file that changes is read again."""
    (tmp_path / "index.html").write_text('<head><base href="/"></head>')
    web = TestClient(app(tmp_path))
    assert web.get("/runs").text == '<head><base href="/"></head>'
    assert web.get("/in/here/runs").text == '<head><base href="/in/here/"></head>'
    web = TestClient(app(tmp_path), root_path='/"><script>')
    assert "<script>" not in web.get('/"><script>/runs').text
    before = web.get("/static/index.html").headers["etag"]
    (tmp_path / "index.html").write_text("<head>another one</head>")
    assert web.get("/static/index.html").headers["etag"] != before


def test_the_document_names_what_its_view_imports(tmp_path):
    """Each file once, that which others import too, and none that is not there; and again when a script has changed."""
    (tmp_path / "js" / "views").mkdir(parents=True)
    (tmp_path / "index.html").write_text('<head>\n<base href="/">\n<script src="static/js/app.js"></script>\n</head>')
    (tmp_path / "js" / "app.js").write_text('import { a } from "./a.js";\n')
    (tmp_path / "js" / "a.js").write_text('import { b } from "./views/runs.js";\n')
    view = tmp_path / "js" / "views" / "runs.js"
    imports = (
        'import {\n  a,\n} from "../a.js";\nimport { app } from "../app.js";\nexport { c } from "../../../c.js";\n'
    )
    view.write_text(f'{imports}import("./later.js");\n')
    (tmp_path / "js" / "views" / "later.js").write_text("")
    web = TestClient(app(tmp_path))
    before = web.get("/runs")
    preloaded = re.findall('<link rel="modulepreload" href="static/(.*)">', before.text)
    assert preloaded == ["js/views/runs.js", "js/a.js"]
    view.write_text('export const open = () => ({ element: styled(h("div"), "run") });\n')
    after = web.get("/runs")
    assert re.findall("<link .*>", after.text) == [
        '<link rel="stylesheet" href="static/css/run.css" data-of="run">',
        '<link rel="modulepreload" href="static/js/views/runs.js">',
    ]
    assert before.headers["etag"] != after.headers["etag"]


def test_gzip_is_of_the_file(tmp_path):
    (tmp_path / "a.css").write_text("a" * 1000)
    with TestClient(app(tmp_path)).stream("GET", "/static/a.css", headers={"Accept-Encoding": "gzip"}) as answer:
        assert gzip.decompress(b"".join(answer.iter_raw())) == b"a" * 1000


@on_a_server
async def test_people_find_every_path(site):
    """In a table under /api, that fetches nothing and runs nothing."""
    answer = await site.bare.get("/api")
    for each in PATHS:
        assert each.path in answer.text and each.says in answer.text
    assert "://" not in answer.text and "<script" not in answer.text
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert "trusted-types 'none'" in HEADERS["Content-Security-Policy"]


@on_a_server
async def test_a_caller_is_told_who_that_is(site):
    """With any scope; who has no credential is told how to get a session, and nothing else."""
    _, secret = await site.hf.create_token("ana", groups=["editors"], scopes=["decide"], expires="1h")
    told = (await site.bare.get("/api/me", headers={"Authorization": f"Bearer {secret}"})).json()
    assert {name: told[name] for name in ("name", "groups", "scopes", "only", "question", "via", "store")} == {
        "name": "ana", "groups": ["editors"], "scopes": ["decide"], "only": None, "question": None, "via": "token",
        "store": "sqlite",
    }  # fmt: skip
    assert told["now"] < told["ends_at"] and told["version"]
    assert (await site.bare.get("/api/me")).status_code == 401
    assert (await site.bare.get("/api/sign-in")).json() == {"token": True, "oidc": None}
