"""What a URL has of secrets is told to nobody: not in errors, answers, advice, pictures or logs, however it is written."""

import asyncio
import re
import traceback

import httpx2
import pytest
from tests.http.site import twice
from tests.workers import Worker, bearer

import holdfast
from holdfast.client.client import store_for
from holdfast.words.urls import redacted

SECRET = "hunter2"
HOST = "127.0.0.1:1"  # where nobody listens
SHAPES = [
    f"postgresql://u:{SECRET}@{HOST}/db",
    f"postgres://u:{SECRET}@{HOST}/db?schema=x",
    f"postgresql://:{SECRET}@{HOST}/db",
    f"postgresql://u:a@{SECRET}@{HOST}/db",
    f"postgresql://u:a/{SECRET}@{HOST}/db",
    f"postgresql://u:{SECRET}/b@{HOST}/db",
    f"postgresql://u:a?{SECRET}@{HOST}/db",
    f"postgresql://u:a#{SECRET}@{HOST}/db",
    f"postgresql://u:a:{SECRET}@{HOST}/db",
    f"postgresql://u:%40{SECRET}@{HOST}/db",
    f"postgresql://u:[{SECRET}@{HOST}/db",
    f"postgresql://u:{SECRET}@{HOST},127.0.0.1:2/db",
    f"postgresql://u:{SECRET}@{HOST},u:{SECRET}@127.0.0.1:2/db",
    f"postgresql://u:{SECRET}@/db?host=/nowhere",
    f"postgresql://u:{SECRET}@%2Fnowhere/db",
    f"postgresql:///db?host=/nowhere&user=u&password={SECRET}",
    f"postgresql://{HOST}/db?password={SECRET}&schema=x",
    f"postgresql://{HOST}/db?PASSWORD={SECRET}",
    f"postgresql://{HOST}/db?p%61ssword={SECRET}",
    f"postgresql://{HOST}/db?sslpassword={SECRET}&sslmode=disable",
    f"postgresql://{HOST}/db?password=a&{SECRET}&schema=x",
    f"postgresql://{HOST}/db?password={SECRET}&schema=No",
    f"postgresql://{HOST}/db?password={SECRET}&statement_cache=x",
    f"postgresql://u:{SECRET}",
    f"postgresql://u:{SECRET}@[::1]:1/db",
    f"postgresql://u:{SECRET}@h:port/db",
    f"postgresql+asyncpg://u:{SECRET}@{HOST}/db",
    f"mysql://u:{SECRET}@{HOST}/db",
    f"//u:{SECRET}@{HOST}/db",
    f"u:{SECRET}@{HOST}/db",
    f"postgresql:u:{SECRET}@{HOST}/db",
    f"postgresql:/u:{SECRET}@{HOST}/db",
    f"POSTGRESQL://u:{SECRET}@{HOST}/db",
    f" postgresql://u:{SECRET}@{HOST}/db",
    f"postgresql%3A//u:{SECRET}@{HOST}/db",
    f"sqlite://u:{SECRET}@host/x.db",
    f"sqlite:///folder/?password={SECRET}",
    f"sqlite:x.db?password={SECRET}",
    f"file:x.db?token={SECRET}",
    f"host=h user=u password={SECRET} dbname=d",
    f"host=h password = 'a {SECRET}' dbname=d",
    f"host= password={SECRET} dbname=d",
    f"sqlite://u:{SECRET}?@host/x.db",
    f"postgresql://u:{SECRET}@{HOST}/db?user=\ud800",
]


@pytest.mark.parametrize("url", SHAPES)
def test_a_url_that_cannot_be_opened_is_told_without_secrets(url, caplog):
    """A clear error of ours, and nothing in it or in all that led to it says the password."""

    async def main():
        await store_for(url).open()

    with pytest.raises((holdfast.BadArguments, holdfast.StoreUnavailable)) as caught:
        asyncio.run(main())
    told = [redacted(url), str(caught.value), caplog.text, *traceback.format_exception(caught.value)]
    assert SECRET not in "".join(told)


@pytest.mark.parametrize("url", [
    "sqlite:runs.db", "sqlite:/a@b:c/x.db?durability=process", "sqlite:C:/x.db", "postgresql://u@h:5432/db?schema=s",
    "postgresql://[::1]:5432/db", "postgresql://h:1,g:2/db", "postgresql:///db?host=/tmp", "postgresql://u@[::1]:5432/db",
])  # fmt: skip
def test_a_url_without_secrets_is_shown_as_it_is(url):
    assert redacted(url) == url


def test_nobody_is_told_the_password_of_a_store_in_use(commands, postgres_url, tmp_path):
    """Commands that advise others, a picture, what a server says to who may only read: none has it."""
    url = f"{postgres_url}&password={SECRET}"
    before, after = url.split("://")
    if "@" in after:
        url = f"{before}://{after.replace('@', f':{SECRET}@', 1)}"

    async def prepare():
        async with holdfast.open(url, agents=[twice]) as hf:
            await hf.start(twice, 1, id="late", after="1h")
            await hf.get("late").pause(reason="look")

    asyncio.run(prepare())
    told = ""
    for words in (["runs"], ["show", "late"], ["show", "late", "--svg", "late.svg"], ["show", "none"], ["runs", "--stuck"],
                  ["runs", "late", url], ["doctor"], ["approvals"],
                  ["start", "nobody"], ["backup", str(tmp_path / "copy.db")], ["pause", "late"]):  # fmt: skip
        process = Worker(commands.start([*words, "--db", url], tmp_path, {}))
        process.ended()
        assert process.said(), words
        told += process.said()
    server = Worker(commands.start(["serve", "--port", "0", "--db", url], tmp_path, {}))
    address = re.search(r"http://[\d.]+:\d+", server.until("Serving"))[0]
    with httpx2.Client(base_url=address, timeout=20, headers=bearer(url)) as web:
        for path in (
            "/api/runs/none",
            "/api/runs/none/events",
            "/api/approvals/none",
            "/metrics",
            "/readyz",
            "/api/none",
        ):
            told += web.get(path).text
    server.kill()
    told += server.said()
    told += (tmp_path / "late.svg").read_text()
    assert "postgresql://" in told
    assert SECRET not in told
