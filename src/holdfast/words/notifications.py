"""Notifications: which events are told to whom, and in which words. Data and arithmetic only: no clock, no I/O.

A notification is a name, a target and the kinds of events that it is told. What goes out for an event is a message: an id
that never changes, and a document that is written once. How it looks (JSON with a signature, a line for a chat, a mail) is
made from the document when it is sent, and is the same for every attempt.

A document is a summary. It has what lists show: the run, its agent, its labels, the text of a question and of an error. The
value that a question shows, arguments and results are not in it: the link leads to them, and asks visitors to sign in.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from typing import Any, Final, Literal, cast
from urllib.parse import quote, urlsplit

from holdfast.errors import BadArguments, NotAllowed
from holdfast.values.text import cut, near, short
from holdfast.words.durations import moment, spoken
from holdfast.words.events import error_line, told
from holdfast.words.harmless import harmless
from holdfast.words.model import KINDS, Event, RunRow, is_awkward
from holdfast.words.retry import Retry, as_retry
from holdfast.words.webhooks import Verify

Format = Literal["json", "slack", "mail"]
FORMATS: Final = ("json", "slack", "mail")
STUCK: Final = "run.stuck"
REACHED: Final = "budget.reached"
TEST: Final = "notification.test"
# What is no event of its own, but can be told from the store.
CONDITIONS: Final = {
    STUCK: "a run does not go on by itself: it is paused, or no worker took it for a minute",
    REACHED: "a budget is spent: a person is asked for more, or a step was refused",
}
_SOURCES: Final = {REACHED: ("approval.asked", "step.failed")}  # the kinds of events that a condition is told by
DEFAULT_RETRY: Final = Retry(12, first="5s", factor=4, max="6h")  # more than a day
_NAME: Final = re.compile(r"[A-Za-z0-9_.@-]{1,100}")
_REFERENCE: Final = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]{0,199}")
_MAIL: Final = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_UNWRITABLE: Final = re.compile(r"[\s\x00-\x20\x7f-\x9f\\]")
_LONGEST_URL: Final = 2_000
_LONGEST_TEXT: Final = 2_000
_LONGEST_ERROR: Final = 500
_LONGEST_LABELS: Final = 8_000  # characters
_MOST_SECRETS: Final = 5
_SUBJECT: Final = 120
# Variables of the workers that may be named over HTTP: these, and longer names behind an underscore. No setting is called so.
SECRET_PREFIX: Final = "HOLDFAST_NOTIFY_SECRET"  # noqa: S105 - a name
URL_PREFIX: Final = "HOLDFAST_NOTIFY_URL"
VARIABLES: Final = "HOLDFAST_NOTIFY_VARIABLES"  # of a server: others that may be named
LATE_MS: Final = 60_000  # for which a run that is due may wait for a worker
_HOW_TO: Final = (
    "`export OPS_SECRET=whsec_$(openssl rand -base64 32)` makes one for the workers, and the receiver has it too"
)
_ANSWERABLE: Final = ("approval.asked", "approval.reminded", "approval.delegated", "approval.voted", REACHED)


@dataclass(frozen=True, slots=True)
class Target:
    """A notification as declared, checked: the receiver, the events, the form, and how hard it is tried."""

    url: str
    kinds: tuple[str, ...]
    format: Format = "json"
    secrets: tuple[str, ...] = ()
    agent: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    base_url: str | None = None
    attempts: int = DEFAULT_RETRY.attempts
    first_s: float = DEFAULT_RETRY.first_s
    factor: float = DEFAULT_RETRY.factor
    max_s: float = DEFAULT_RETRY.max_s

    def retry(self) -> Retry:
        """Make the policy by which messages are tried again."""
        return Retry(self.attempts, first=self.first_s, factor=self.factor, max=self.max_s)

    def stored(self) -> str:
        """Write it as the store keeps it."""
        return json.dumps({**asdict(self), "labels": dict(self.labels)}, sort_keys=True)

    @classmethod
    def loaded(cls, text: str) -> Target:
        """Read what `stored` wrote."""
        found = json.loads(text)
        return cls(**{**found, "kinds": tuple(found["kinds"]), "secrets": tuple(found["secrets"])})

    def sources(self) -> set[str]:
        """List the kinds of events that its messages come from."""
        return {source for kind in self.kinds for source in _SOURCES.get(kind, (kind,)) if kind != STUCK}

    def wants(self, run: RunRow) -> bool:
        """Is it told of this run at all?"""
        return self.agent in (None, run.agent) and self.labels.items() <= json.loads(run.labels).items()


def checked(
    url: object, kinds: str | Iterable[str], *, format: str | None = None, secret: str | Sequence[str] | None = None,
    agent: str | None = None, labels: Mapping[str, str] | None = None, base_url: str | None = None,
    retry: int | Retry | None = None,
) -> Target:  # fmt: skip
    """Make a target of what was given; `BadArguments`, without anything that may be secret, if it cannot be used."""
    place = checked_url(url)
    chosen = format or ("mail" if place.startswith("mailto:") else "json")
    if chosen not in FORMATS:
        raise BadArguments(f"format={short(chosen)}: choose one of {', '.join(FORMATS)}")
    if not place.startswith("env:") and place.startswith("mailto:") != (chosen == "mail"):
        raise BadArguments(f"format={chosen!r} does not fit {shown_url(place)}: mail goes to mailto:ana@example.com")
    secrets = (secret,) if isinstance(secret, str) else tuple(secret or ())
    if len(secrets) > _MOST_SECRETS or not all(
        isinstance(each, str) and _REFERENCE.fullmatch(each) for each in secrets
    ):
        raise BadArguments(  # without the text itself, which may be the secret
            f"a secret is given by the variable of the workers that has it, such as env:OPS_SECRET, and never itself. {_HOW_TO}"
        )
    if chosen == "json" and not secrets:
        raise BadArguments(
            "no secret is given, and the receiver must be able to tell that it was you: name the variable of the workers that has "
            f"one, secret='env:OPS_SECRET' (--secret env:OPS_SECRET). {_HOW_TO}. Chats need none: format='slack' (--format slack)"
        )
    if chosen != "json" and secrets:
        raise BadArguments(f"format={chosen!r} is not signed: leave secret= (--secret) out")
    for name, value in (labels or {}).items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise BadArguments("labels= are texts, such as labels={'team': 'sales'}")
    policy = DEFAULT_RETRY if retry is None else as_retry(retry)
    if policy.on != (Exception,):
        raise BadArguments("retry= of a notification is about times alone: leave on= out")
    return Target(
        place, checked_kinds(kinds), cast(Format, chosen), secrets, agent, dict(labels or {}), checked_base(base_url),
        policy.attempts, policy.first_s, policy.factor, policy.max_s,
    )  # fmt: skip


def check_named(url: object, secrets: Iterable[str], listed: str) -> None:
    """Refuse, with `NotAllowed`, variables of the workers that a caller from afar may not name.

    A worker has variables that are nothing to such a caller, and signs and connects with the one that is named. So it is one whose
    name says what it is for, or one that the operator has `listed`, with commas or spaces in between.
    """
    known = set(listed.replace(",", " ").split())
    named = [(str(url), URL_PREFIX), *((each, SECRET_PREFIX) for each in secrets)]
    for place, prefix in named:
        name = place.removeprefix("env:")
        if not _REFERENCE.fullmatch(place) or name in known or _is_below(name, prefix):
            continue
        raise NotAllowed(
            f"env:{name}: over HTTP a notification may name {prefix} and variables that begin with {prefix}_, and others that the "
            f"operator of the server lists: {VARIABLES}={name!r} in the environment of `holdfast serve`. Rename the variable, have "
            "it listed, or make the notification with `holdfast notify` or `hf.notify`"
        )


def _is_below(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(f"{prefix}_")


def checked_kinds(kinds: str | Iterable[str]) -> tuple[str, ...]:
    """List the kinds that are meant, without repeats; 'approval' is all that happens to questions."""
    known = [*KINDS, *CONDITIONS]
    found: dict[str, None] = {}
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        family = [kind] if kind in known else [each for each in known if each.partition(".")[0] == kind]
        if not family:
            meant = near(str(kind), known)
            perhaps = f"; perhaps {meant!r}" if meant else ""
            raise BadArguments(f"{short(kind)} is no kind of event{perhaps}. There are: {', '.join(known)}")
        found |= dict.fromkeys(family)
    if not found:
        raise BadArguments(
            "say of what it is told: kinds=['approval.asked', 'run.failed'] (--kind approval.asked --kind run.failed)"
        )
    return tuple(found)


def checked_url(url: object) -> str:
    """The URL itself, or `BadArguments`, which does not repeat it: a URL may be a secret."""
    if not isinstance(url, str) or len(url) > _LONGEST_URL or _UNWRITABLE.search(url):
        raise BadArguments(
            f"a notification goes to a URL of at most {_LONGEST_URL:,} characters, such as 'https://example.com/hooks', "
            "'mailto:ana@example.com' or 'env:SLACK_URL'"
        )
    if _REFERENCE.fullmatch(url):
        return url
    scheme, _, rest = url.partition(":")
    if scheme == "mailto":
        if not _MAIL.fullmatch(rest):
            raise BadArguments(
                "mailto: is followed by one address, as in 'mailto:ana@example.com'; a list has an address too"
            )
        return url
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise BadArguments(
            "the URL of a notification cannot be read; write it as 'https://example.com/hooks'"
        ) from None
    if parts.scheme not in ("https", "http") or not host or port == 0 or not url.isascii():
        raise BadArguments(
            "a notification goes to https://HOST/PATH in plain ASCII, to mailto:ADDRESS, or to the URL in a variable of the "
            "workers, env:NAME"
        )
    if parts.username is not None or parts.password is not None:
        raise BadArguments(
            "a URL with a password in it would be kept in the store: give it as 'env:NAME', by where it is"
        )
    return url


def checked_base(base_url: str | None) -> str | None:
    """Return the beginning of links, without a slash at its end; `BadArguments` if it is no address of a server."""
    if base_url is None:
        return None
    if not isinstance(base_url, str) or not base_url.startswith(("https://", "http://")):
        raise BadArguments(
            f"base_url={short(base_url)}: where `holdfast serve` is reached, such as 'https://agents.example.com'"
        )
    return checked_url(base_url.partition("?")[0].partition("#")[0]).rstrip("/")


def checked_notification(name: object) -> str:
    """The name itself, or `BadArguments` that says what it looks like."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or is_awkward(name):
        raise BadArguments(
            f"{short(name)} is not the name of a notification; use 1 to 100 letters, digits or any of '_ . @ -', such as 'ops'"
        )
    return name


def default_name(url: str) -> str:
    """Make a name for a URL, the same each time: `example.com-5f1d0c7a`."""
    tail = hashlib.sha256(url.encode()).hexdigest()[:8]
    head = url.partition(":")[2] if url.startswith(("env:", "mailto:")) else urlsplit(url).hostname or ""
    return f"{re.sub(r'[^A-Za-z0-9_.@-]', '-', head)[:80]}-{tail}".lstrip("-.")


def shown_url(url: str) -> str:
    """Write a URL for lists: a path or a query may be what lets anybody post there."""
    if url.startswith(("env:", "mailto:")):
        return url
    parts = urlsplit(url)
    behind = "/…" if parts.path not in ("", "/") or parts.query else ""
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}" + (f":{parts.port}" if parts.port else "") + behind


# Messages


@dataclass(frozen=True, slots=True)
class Message:
    """A message for one notification: the id by which a receiver knows it again, and its document."""

    id: str
    document: Mapping[str, Any]

    def body(self) -> bytes:
        """Write the document, in ASCII."""
        return json.dumps(self.document, separators=(",", ":")).encode()


def messages(name: str, target: Target, event: Event, run: RunRow) -> list[Message]:
    """List what a notification is told about an event: nothing, the event, or the condition that it shows, or both."""
    if not target.wants(run):
        return []
    kinds = [kind for kind in (event.kind, REACHED) if kind in target.kinds]
    made = []
    for kind in kinds:
        once = f"{event.seq}" if kind == event.kind else _reached(event)
        if once is not None:
            text, more = _said(event, target.base_url)
            document = _document(kind, run, event.at, text, target.base_url)
            document["data"] |= {"position": event.position, "seq": event.seq, **more}
            made.append(Message(_id(name, kind, run.uid, once), document))
    return made


def _said(event: Event, base_url: str | None) -> tuple[str, dict[str, Any]]:
    """Tell an event, and the question or error that it is about."""
    try:
        return _text(event), _more(event, base_url)
    except (AttributeError, KeyError, TypeError, ValueError):  # another version wrote it: it must not keep others back
        return _meaning(event), {}


def stuck(name: str, target: Target, run: RunRow, now: int) -> Message | None:
    """Tell a notification that a run is stuck; None if it is not, or not for it. One stop of a run is one message.

    A run that a person has paused is not stuck.
    """
    if STUCK not in target.kinds or not target.wants(run):
        return None
    why = run.reason or ""
    if run.status == "paused":
        if why.startswith("paused by "):
            return None
        at, text = run.updated_at, f"paused: {cut(why, _LONGEST_TEXT) or 'no reason was given'}"
    else:
        if run.due_at is None or now - run.due_at < LATE_MS:
            return None
        at = run.due_at
        text = f"it has been due for {spoken(max(now - at, 0) / 1000)}, and no worker took it: `holdfast runs --stuck` says why"
    document = _document(STUCK, run, at, text, target.base_url)
    return Message(_id(name, STUCK, run.uid, f"{run.status == 'paused'}:{run.next_seq}"), document)


def trial(name: str, once: str, now: int) -> Message:
    """Make the message by which people try a notification."""
    text = f"notification {name} works"
    return Message(
        _id(name, TEST, "", once), {"type": TEST, "timestamp": _at(now), "data": {"notification": name, "text": text}}
    )


def _reached(event: Event) -> str | None:
    """Name the budget that an event shows to be spent, and which time it is."""
    data = event.data
    if event.kind == "approval.asked" and data.get("kind") == "budget":
        return f"asked {data.get('approval')}"
    error = data.get("error")
    if event.kind == "step.failed" and isinstance(error, dict) and error.get("type") == "BudgetExceeded":
        return "refused"  # once for a run: each of its next steps is refused too
    return None


def _id(name: str, kind: str, uid: str, once: str) -> str:
    return f"msg_{hashlib.sha256(json.dumps([name, kind, uid, once]).encode()).hexdigest()[:32]}"


def _document(kind: str, run: RunRow, at: int, text: str, base_url: str | None) -> dict[str, Any]:
    labels = json.loads(run.labels) if len(run.labels) <= _LONGEST_LABELS else {}
    data = {"run": run.id, "agent": run.agent, "labels": labels, "text": cut(_clean(text), _LONGEST_TEXT)}
    if base_url is not None:
        data["link"] = f"{base_url}/api/runs/{quote(run.id, safe='')}"
        data["page"] = f"{base_url}/runs/{quote(run.id, safe='')}"
    return {"type": kind, "timestamp": _at(at), "data": data}


def _at(at: int) -> str:
    return moment(at).astimezone(UTC).isoformat().replace("+00:00", "Z")


def _clean(text: str) -> str:
    """Leave out what no receiver could read."""
    return text.encode(errors="replace").decode()


def _text(event: Event) -> str:
    """Tell an event without any argument, result or message in it."""
    data = event.data
    if event.kind == "approval.asked":
        return str(data.get("question", ""))
    if event.kind.startswith(("run.", "approval.", "budget.")):
        return told(event)
    name = f"{data['name']}: " if data.get("name") else ""
    return f"{name}{_meaning(event)}" + (f": {error_line(data['error'])}" if data.get("error") else "")


def _meaning(event: Event) -> str:
    return KINDS[event.kind].meaning if event.kind in KINDS else event.kind


def _more(event: Event, base_url: str | None) -> dict[str, Any]:
    """Tell of the question or the error that an event is about."""
    data, found = event.data, dict[str, Any]()
    if data.get("error"):
        error = data["error"]
        found["error"] = {
            "type": str(error.get("type", "")),
            "message": cut(_clean(str(error.get("message", ""))), _LONGEST_ERROR),
        }
    if data.get("approval"):
        question: dict[str, Any] = {"id": data["approval"]}
        asked = {"text": _clean(cut(str(data.get("question", "")), _LONGEST_TEXT)), "to": data.get("to")}
        asked |= {"kind": data.get("kind"), "digest": data.get("digest"), "about": data.get("about")}
        question |= {key: value for key, value in asked.items() if value}
        if data.get("expires_ms"):
            question["expires_at"] = _at(event.at + data["expires_ms"])
        if base_url is not None:
            place = quote(str(data["approval"]), safe="")
            question["link"] = found["link"] = f"{base_url}/api/approvals/{place}"
            question["page"] = found["page"] = f"{base_url}/approvals/{place}"
        found["question"] = question
    return found


# Forms


def signatures(secrets: Iterable[bytes], id: str, at: str, body: bytes) -> str:
    """Sign a message by Standard Webhooks, once with each secret: the header `webhook-signature`."""
    text = b".".join((id.encode(), at.encode(), body))
    made = [hmac.new(secret, text, "sha256").digest() for secret in secrets]
    return " ".join(f"v1,{base64.b64encode(each).decode()}" for each in made)


def scheme() -> Verify:
    """Name the scheme by which messages are signed, as a receiver checks it."""
    return Verify.standard("env:SECRET")


def lines(document: Mapping[str, Any]) -> list[str]:
    """Tell a message to people: a heading, the text, and what they can do. What others wrote in it is made harmless."""
    data, kind = document["data"], document["type"]
    if kind == TEST:
        return [str(data["text"])]
    found = [f"{kind}: {data['agent']}, run {data['run']}", str(data["text"])]
    question = data.get("question")
    if question and kind in _ANSWERABLE:
        who = f" (for {', '.join(question['to'])})" if question.get("to") else ""
        verb = "answer" if question.get("kind") == "ask" else "approve"
        found.append(f"Decide{who}: holdfast {verb} {question['id']}")
    return [harmless(line, keep="\n\t") for line in found]


def _page(document: Mapping[str, Any]) -> str | None:
    """Name the page where people look at it; a message that an older version made has only what programs ask."""
    data = document["data"]
    found: str | None = data.get("page") or data.get("link")
    return found


def as_slack(document: Mapping[str, Any]) -> bytes:
    """Write a message as chats take it that understand Slack's incoming webhooks."""
    head, *rest = [_escaped(line) for line in lines(document)]
    link = _page(document)
    text = "\n".join([f"*{head}*", *rest, *([f"<{_escaped(link)}|Open>"] if link else [])])
    return json.dumps({"text": text}, separators=(",", ":")).encode()


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def as_mail(id: str, document: Mapping[str, Any], sender: str, to: str) -> EmailMessage:
    """Write a message as a mail. Its Message-ID is made of the id, so that mail that comes twice is one mail."""
    head, *rest = lines(document)
    link = _page(document)
    mail = EmailMessage()
    mail["From"], mail["To"] = _mailbox(sender), _mailbox(to)
    mail["Subject"] = cut(" ".join(f"[holdfast] {head}".split()), _SUBJECT)
    mail["Message-ID"] = f"<{id}@{sender.rpartition('@')[2]}>"
    mail["Date"] = datetime.fromisoformat(document["timestamp"])
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content("\n\n".join([head, *rest, *([link] if link else [])]) + "\n")
    return mail


def _mailbox(address: str) -> Address:
    return Address(addr_spec=address)


def checked_mailbox(address: str) -> str:
    """The address itself, or `BadArguments`."""
    if not _MAIL.fullmatch(address):
        raise BadArguments(f"{short(address)} is no address of a mailbox; write it as holdfast@example.com")
    return address
