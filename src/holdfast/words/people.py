"""People: the deciders of a question, and when enough of them agree. No I/O: rows of the store in, answers out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypedDict

from holdfast.errors import BadArguments
from holdfast.values.text import short

_UNWRITABLE: Final = re.compile("[\0\ud800-\udfff]")
_NOTE_LIMIT: Final = 10_000


@dataclass(frozen=True, slots=True)
class Actor:
    """A person who acts, with the person's groups.

    Attributes:
        name: The person.
        groups: The groups, for questions `to="group:..."`.
        via: A door that is trusted to act for anybody, such as the command line of the store's owner. Then the name is not
            checked, and the audit has the door beside the name.

    Raises:
        BadArguments: A name is empty, too long or cannot be stored. It is checked where the actor acts.

    Example:
        ```python
        ana = holdfast.Actor("ana", groups=["it-admins"])
        await hf.approve(question, by=ana)
        ```
    """

    name: str
    groups: Sequence[str] = ()
    via: str = ""

    @classmethod
    def of(cls, by: str | Actor) -> Actor:
        """The person; `BadArguments` if this names none."""
        actor = cls(by) if isinstance(by, str) else by
        if not isinstance(actor, Actor):
            raise BadArguments(f"by={by!r}: give the name of whoever acts, by='ana', or Actor('ana', groups=['it'])")
        for name in (actor.name, *actor.groups):
            checked_name(name, "by")
        return actor


class Author(TypedDict):
    """A person who does something from outside, and the door they came through, as the audit has it."""

    by: str
    via: str


SOMEONE: Final = Actor("someone")  # acts through a client that was given no actor
PYTHON: Final = "python"  # the door of programs that use the client as a library
GROUP: Final = "group:"  # before a name: the group alone, and no person of that name
LINK: Final = "link:"  # begins the door of a link to one question; the id of the link follows
_TERMINAL: Final = "cli:"  # begins the door of the command line; the user of the computer follows


@dataclass(frozen=True, slots=True)
class Ballot:
    """One person's answer to a question."""

    id: str  # random: said again, it is still said once
    by: Actor
    yes: bool = True
    note: str = ""
    seen: str | None = None  # the digest of what the person was shown; None: what the agent showed
    value: str | None = None  # what the person made of it, or the answer
    digest: str | None = None  # of that
    via: str = ""  # the door it came through


def checked_name(name: str, what: str) -> str:
    """The name of a person or group itself; `BadArguments` if it is none."""
    if not isinstance(name, str) or not name.strip() or len(name) > 200 or _UNWRITABLE.search(name):
        raise BadArguments(f"{what}={name!r} names nobody; use 1 to 200 characters, for example {what}='ana'")
    if name.startswith(GROUP) and what in ("name", "groups"):
        raise BadArguments(
            f"{what}={name!r}: {GROUP!r} stands before a group that a question is for; no name begins so"
        )
    if what in ("name", "groups") and name != name.strip():
        raise BadArguments(f"{what}={name!r} looks like another name: leave out the spaces around it")
    return name


def whose(to: str | Actor) -> Actor:
    """Return the person, or the group, whose questions are wanted."""
    if isinstance(to, str) and to.startswith(GROUP):
        return Actor(GROUP, [checked_name(to.removeprefix(GROUP), "to")])
    return Actor.of(to)


def checked_names(to: str | Iterable[str]) -> list[str]:
    """Return one name or several as a list; an empty list means anybody."""
    names = [to] if isinstance(to, str) else list(to)
    return [checked_name(name, "to") for name in names]


def checked_note(note: str) -> str:
    """The note itself; `BadArguments` if it cannot be kept."""
    if not isinstance(note, str) or len(note) > _NOTE_LIMIT or _UNWRITABLE.search(note):
        raise BadArguments(f"a note is text of at most {_NOTE_LIMIT} characters, without NUL; got {str(note)[:40]!r}")
    return note


def checked_text(text: str, what: str, most: int | None = None) -> str:
    """The text itself; `BadArguments` if no database could find it again, or it is longer than this."""
    if not isinstance(text, str) or _UNWRITABLE.search(text):
        raise BadArguments(
            f"{what}: {short(text)} has what no database takes; use text without NUL and half characters"
        )
    if most is not None and len(text) > most:
        raise BadArguments(f"{what}: {short(text)} has {len(text)} characters; use at most {most}")
    return text


def writable(text: str) -> str:
    """Text as every database takes it."""
    return _UNWRITABLE.sub("\ufffd", text)


def passed_on(delegations: str) -> list[tuple[str, str]]:
    """Return pairs of names: the first passed a question on to the second, in order."""
    return [(each["by"], each["to"]) for each in json.loads(delegations)]


def held_by(recipients: Sequence[str], passed: Sequence[tuple[str, str]]) -> list[str]:
    """Name the deciders of a question now: people who got it, and not people who passed it on. Empty: anybody but the latter."""
    names = list(dict.fromkeys(recipients))
    for by, to in passed if recipients else ():
        names = [*(name for name in names if name not in (by, to)), to]
    return names


def may_decide(actor: Actor, recipients: Sequence[str], passed: Sequence[tuple[str, str]]) -> bool:
    """Is it this person's to decide? A person who has passed it on may not, unless it was passed back."""
    if actor.via:
        return True
    known = {name for name in (actor.name, *actor.groups) if not name.startswith(GROUP)}
    known.update(GROUP + group for group in actor.groups)
    allowed = not recipients or not known.isdisjoint(recipients)
    for by, to in passed:
        if by == actor.name:
            allowed = False
        if to in known:
            allowed = True
    return allowed


def starters(by: str, via: str | None) -> list[str]:
    """Return the names of a run's starter: as given, and as the computer knows the user of its command line."""
    user = (via or "").partition(_TERMINAL)[2]
    return [by, user] if user not in ("", by) else [by]


def is_left_out(actor: Actor, not_by: Sequence[str]) -> bool:
    """Is this person excluded from deciding, whatever name is given at the command line?

    If the person to exclude is not known, everybody is, except at doors that are trusted to act for anybody.
    """
    if SOMEONE.name in not_by:
        return not actor.via
    return not set(starters(actor.name, actor.via)).isdisjoint(not_by)


def needed(needs: str, digest: str) -> int | None:
    """Count the people who must agree to the value with this digest; None when only the run's worker can tell."""
    told: int | dict[str, int] = json.loads(needs)
    return told if isinstance(told, int) else told.get(digest)


def votes_for(votes: Sequence[dict[str, Any]], digest: str) -> list[dict[str, Any]]:
    """Return the votes on the value with this digest, and not on the value before a person edited it."""
    return [vote for vote in votes if vote["digest"] == digest]


def agreeing(votes: Sequence[dict[str, Any]], digest: str) -> set[str]:
    """Return the names of the people who have said yes to the value with this digest."""
    return {vote["by"] for vote in votes_for(votes, digest) if vote["yes"]}


def deciders(decision: str | None, agreed: Iterable[str], last: str) -> str:
    """Tell who has decided a question: of an approval all who agreed."""
    return " and ".join(dict.fromkeys([*(agreed if decision == "approved" else ()), last]))
