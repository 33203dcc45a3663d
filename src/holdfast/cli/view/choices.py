"""Choices about a question, wherever one is told: the value it shows, the fields that may be edited, a command for each choice.

Every command can be pasted as it stands. Where a person has something to say first, a word in capitals keeps the place; no
command takes that word for an answer.
"""

from __future__ import annotations

import json
from typing import Any, Final

from holdfast.cli.stores import BundleFile
from holdfast.cli.view.advice import command
from holdfast.cli.view.draw import clean
from holdfast.cli.view.screen import Text
from holdfast.client.approvals import Approval, offers_result
from holdfast.client.documents import plain
from holdfast.client.edge import user
from holdfast.values.text import cut
from holdfast.words.people import Actor, is_left_out

VALUE: Final = "VALUE"  # keeps the place of an answer
ANEW: Final = "A copy asks its questions anew where it is imported: decide there."
_SHOWN: Final = 200  # characters of what is shown


def choices(question: Approval, url: str | None) -> list[tuple[str, str]]:
    """Write each choice in words, and its command."""
    if question.kind == "approve":
        edited = [("Approve it, edited" + _fields(question.schema), "approve", "--data", "JSON")] * question.editable
        said = [("Approve it:", "approve"), *edited, ("Deny it:", "deny")]
    elif question.kind == "ask":
        said = [(f"Answer it, {VALUE} being what you say:", "answer", VALUE)]
    else:
        said = (
            [
                ("Do it again:", "answer", "run"),
                ("Go on with the result that is recorded:", "answer", "use"),
                (f"Go on with {VALUE} as its result:", "answer", f'{{"result": {VALUE}}}'),
                ("Fail the step:", "answer", "fail"),
            ]
            if offers_result(question.shown)
            else [
                ("It did not happen, run it:", "answer", "run"),
                (f"It happened, and {VALUE} came of it:", "answer", f'{{"result": {VALUE}}}'),
                ("Nobody knows, fail the step:", "answer", "fail"),
            ]
        )
    where, db = ([str(url)], None) if isinstance(url, BundleFile) else ([], url)
    return [(what, command(verb, *where, question.id, *more, db=db)) for what, verb, *more in said]


def to_decide(question: Approval, url: str | None, margin: str = "  ") -> list[Text]:
    """Write what a question shows, its beginning if that is long, and the choices, a line each."""
    made = []
    if question.kind == "approve" and question.data is not None:
        made.append(Text(margin + value_line(question.data)))
    if is_left_out(Actor(user(), via=f"cli:{user()}"), question.not_by):
        why = "You started its run: another person decides it, with a token or from an account of their own."
        return [*made, Text(margin + why, "dim")]
    if isinstance(url, BundleFile) and url.is_copy:
        return [*made, Text(margin + ANEW, "dim")]
    told = choices(question, url)
    return made + [Text(f"{margin}{what}  ", "dim", no_wrap=True).append(line, "bold") for what, line in told]


def value_line(value: Any) -> str:
    """Write a value in one line."""
    return cut(clean(json.dumps(plain(value), ensure_ascii=False)), _SHOWN)


def _fields(schema: dict[str, Any] | None) -> str:
    """Name the fields of an object of this schema, if it is one."""
    found = schema or {}
    found = found.get("$defs", {}).get(str(found.get("$ref", "")).rpartition("/")[2], found)
    names = ", ".join(name for name in found.get("properties", {}) if name.isidentifier())
    return f" ({cut(names, _SHOWN)}):" if names else ":"
