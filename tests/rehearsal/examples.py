"""The research and the support example, rehearsed with another model and with another prompt, by the real command line.

`python -m tests.rehearsal.examples` writes what the commands print into docs/time-travel.md. A test holds the page to it, but for
times and ports.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.examples.research import EXAMPLE as RESEARCH
from tests.examples.research import START
from tests.examples.support import EXAMPLE as SUPPORT
from tests.rehearsal.changes import PAGE

import holdfast
import holdfast.testing
from holdfast.testing.provider import provider

BLOCKS = ("replay", "debug", "check", "rehearse support", "rehearse research", "rehearse many", "diff")
TOLD = r"\$ .*|  [≠<>✓✗] [\w@:./#-]+  .*|  steps answered.*|.* runs? replayed.*"
SRC = PAGE.parents[1] / "src"
PARTS = ("agents", "chat", "shop", "coast", "reading", "release1", "release2", "briefer", "terse")
ANYWAY = "--budget tokens=10000 --decide --answer publish=nowhere"
BRIEFER = '''"""Release 1 with another prompt for its notes."""

import holdfast
from reading import ask, crawl, each, joined, publish


async def note(page):
    return await ask(f"{page.text}\\n\\nWhat is this about?")


@holdfast.agent
async def research(start: str, pages: int = 40) -> str:
    found = await crawl(start, pages)
    notes = await each(note, found)
    report = await ask(joined(notes))
    if await holdfast.approve("Publish this report?", show=report):
        return await publish(start, report)
    return "not published"
'''
TERSE = '''"""Another model for the clerk: it looks the order up, and says where it is in one word."""

from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel


def answer(messages, info):
    found = [part.content for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
    if not found:
        return ModelResponse([ToolCallPart("find_order", {"number": 101}, "look")])
    return ModelResponse([TextPart(str(found[0]["state"]).split()[0].capitalize() + ".")])


terse = FunctionModel(answer)
'''


@contextlib.contextmanager
def folder(example: Path, **files: str) -> Iterator[Path]:
    """A folder with these files, whose modules and those of the example can be imported."""
    before, paths = Path.cwd(), list(sys.path)
    others = {name: sys.modules.pop(name) for name in PARTS if name in sys.modules}  # of a test with other servers
    with tempfile.TemporaryDirectory() as place:
        for name, text in files.items():
            (Path(place) / name.replace("_", ".")).write_text(text)
        for file in example.glob("*.py"):
            (Path(place) / file.name).write_text(file.read_text("utf-8"))
        (Path(place) / "atlas.md").write_text((RESEARCH / "atlas.md").read_text("utf-8"))
        os.chdir(place)
        sys.path.insert(0, place)
        try:
            yield Path(place)
        finally:
            os.chdir(before)
            sys.path[:] = paths
            for name in PARTS:
                sys.modules.pop(name, None)
            sys.modules.update(others)


def typed(words: str, shown: str | None = None, *, keys: str | None = None, **env: str) -> str:
    """A command as it is typed, and what it prints; `keys` are typed at its prompt."""
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", *shlex.split(words)[1:]], check=False, capture_output=True, text=True, timeout=60,
        input=keys, env=os.environ | {"PYTHONPATH": str(SRC), "COLUMNS": "100"} | env,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stdout + done.stderr
    lines = [line.rstrip() for line in (done.stdout + done.stderr).splitlines()]
    return "\n".join([f"$ {shown or words}", *lines])


def debugged(words: str) -> str:
    """A session with the debugger: where it is, a variable, the next line, and what came of it."""
    keys = ["p len(notes)", "n", "p report[:40]", "q"]
    said = typed(words, keys="\n".join(keys) + "\n")
    head, *answers = said.split("(holdfast)")
    assert len(answers) == len(keys), said
    told = [f"(holdfast) {key}\n{answer.strip()}".rstrip() for key, answer in zip(keys, answers, strict=True)]
    return re.sub(r"> /\S+/", "> ", "\n".join([head.rstrip(), *told]))


def shortened(text: str) -> str:
    """What a command prints, with the details of the first pair alone."""
    first, *others = re.split(r"\n\n(?=  [≠<>] )", text)
    heads = [other.splitlines()[0] for other in others[1:]]
    last = text.splitlines()[-1:] if "steps answered" in text else []
    return "\n\n".join([first, *others[:1]]) + "\n" + "\n".join(["", *heads, *last])


def console(*blocks: str) -> str:
    text = "\n".join(blocks)
    text = re.sub(r"127\.0\.0\.1:(?!8712)\d+", "127.0.0.1:8710", text)
    return f"```console\n{text}\n```"


def support() -> dict[str, str]:
    """Three customers, asked about by another model, and with another prompt."""
    with folder(
        SUPPORT, terse_py=TERSE, kind_txt="You are the kind support of a small shop. Answer in one sentence.\n"
    ):
        os.environ["HOLDFAST_URL"] = "sqlite:shop-runs.db"
        import shop as world

        with world.Shop(Path("shop.db")).open() as shop, world.scripted_model(shop) as model:
            os.environ["SHOP_URL"], os.environ["MODEL_URL"] = shop.url, model.url
            import chat

            async def record() -> None:
                async with holdfast.testing.open(agents=[chat.support], path="shop-runs.db") as hf:
                    for customer in ("ana", "bo", "cy"):
                        await chat.say(hf, customer, "Where is order 101?", "1")

            asyncio.run(record())
            before = shop.books()
            one = typed("holdfast rehearse ana-1 --code agents.py --model terse.py:terse --budget tokens=5000")
            prompt = typed("holdfast rehearse ana-1 --code agents.py --prompt clerk=kind.txt --budget tokens=5000")
            many = typed(
                "holdfast rehearse ana-1 bo-1 cy-1 --code agents.py --model terse.py:terse --budget tokens=5000"
            )
            difference = typed("holdfast diff ana-1 bo-1")
            after = shop.books()
        assert before["requests"] == after["requests"]  # no order was looked up again
    return {
        "rehearse support": console(shortened(one), "", shortened(prompt)),
        "rehearse many": console(many),
        "diff": console(shortened(difference)),
    }


def research() -> dict[str, str]:
    """A report that another model would write, and one about which a model is asked otherwise."""
    with folder(RESEARCH, briefer_py=BRIEFER):
        os.environ["HOLDFAST_URL"] = "sqlite:atlas.db"
        import coast

        with coast.Site().open() as site, coast.scripted_model(site) as model:
            os.environ["MODEL_URL"] = model.url
            import release1

            async def record() -> None:
                async with holdfast.testing.open(agents=[release1], path="atlas.db") as hf:
                    run = await hf.start("research", site.url + START, 3, id="atlas")
                    await hf.approve(await run.wait_for_question(), by="ana")
                    await run.result()
                    run = await hf.start("research", site.url + START, 3, id="open")
                    await run.wait_for_question()
                    await run.wait("waiting")

            asyncio.run(record())
            replay = typed("holdfast replay open --code release1.py")
            debug = debugged("holdfast replay open --code release1.py --break ask#0 --debug")
            check = typed("holdfast check briefer.py --finished 1")
            before = site.books()
            with provider(_shorter, models=("smollm2",)) as other:
                words = f"holdfast rehearse atlas --code release1.py --live ask {ANYWAY}"
                changed = typed(words, f"MODEL_URL=http://127.0.0.1:8712/v1 {words}", MODEL_URL=other.url)
            prompt = typed(f"holdfast rehearse atlas --code briefer.py {ANYWAY}")
            after = site.books()
        assert (before["pages"], before["reports"]) == (
            after["pages"],
            after["reports"],
        )  # nothing was read or published
    blocks = {"replay": console(replay), "debug": console(debug), "check": console(check)}
    return blocks | {"rehearse research": console(shortened(changed), "", shortened(prompt))}


def _shorter(request: Any) -> str:
    """Another model: the first five words of what it is asked."""
    return " ".join(request.prompt.split()[:5]) + "."


def made() -> dict[str, str]:
    """Every block of the page, by its mark."""
    kept = {name: os.environ.get(name) for name in ("HOLDFAST_URL", "SHOP_URL", "MODEL_URL")}
    try:
        return support() | research()
    finally:
        for name, value in kept.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def in_page(page: str, blocks: dict[str, str]) -> str:
    for name, text in blocks.items():
        begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        page = re.sub(f"{begin}.*?{end}", lambda _, a=begin, b=end, t=text: f"{a}\n{t}\n{b}", page, flags=re.DOTALL)
    return page


def facts(page: str) -> dict[str, list[str]]:
    """By mark, what a block says whatever the order of calls that were made at once, and however long they took."""
    found = {}
    for name in BLOCKS:
        text = page.split(f"<!-- {name} -->")[1].split(f"<!-- /{name} -->", maxsplit=1)[0]
        told = re.findall(
            r"^(?:\$ .*|  [≠<>✓✗] [\w@:./#-]+  .*|  steps answered.*|.* runs? replayed.*|  result .*|-> .*|\(holdfast\) .*)$",
            text,
            re.MULTILINE,
        )
        found[name] = sorted(" ".join(line.split()) for line in told)
        assert found[name], name
    return found


if __name__ == "__main__":
    PAGE.write_text(in_page(PAGE.read_text("utf-8"), made()), "utf-8")
