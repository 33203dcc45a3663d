"""An inbox that is looked after: letters come in, answers are drafted, a person approves them, and a digest goes out at six."""

import os
import smtplib
from dataclasses import dataclass
from email import message_from_bytes, policy
from email.message import EmailMessage
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

import holdfast
import holdfast.sync

MAIL = urlsplit(os.environ.get("HOLDFAST_SMTP_URL", "smtp://127.0.0.1:8725"))
US = os.environ.get("HOLDFAST_SMTP_FROM", "inbox@example.com")
CHIEF = "chief@example.com"
KNOWN = {
    "open": "We are open from nine to five, Monday to Friday.",
    "order": "Your order has left us, and comes tomorrow.",
}


@dataclass
class Letter:
    """A letter, and the id that makes it one letter however often it comes."""

    id: str
    sender: str
    subject: str
    text: str


def read_letter(content: bytes) -> Letter:
    """Read a letter as mail has it. Whatever brings letters, this is where they become one of ours."""
    mail = message_from_bytes(content, policy=policy.default)
    body = mail.get_body(("plain",))
    text = "" if body is None else body.get_content()
    sender = mail["From"].addresses[0].addr_spec if mail["From"] else ""
    id = sha256((mail["Message-ID"] or "").encode() or content).hexdigest()[:16]
    return Letter(id, sender, str(mail["Subject"] or "no subject"), text.strip())


@holdfast.step
async def draft(letter: Letter) -> str:
    """Write an answer. A model would do better here; nothing else would change."""
    found = [text for word, text in KNOWN.items() if word in f"{letter.subject} {letter.text}".lower()]
    return " ".join(found) or "Thank you for your letter. Somebody will call you."


@holdfast.step(retry=holdfast.Retry(100, first="1s", max="1m"))
def post(to: str, subject: str, text: str) -> None:
    """Send a mail. Run again after a crash it is the same mail: its id is that of the call."""
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = US, to, subject
    mail["Message-ID"] = f"<{sha256(holdfast.idempotency_key().encode()).hexdigest()[:24]}@{US.partition('@')[2]}>"
    mail.set_content(text)
    with smtplib.SMTP(MAIL.hostname or "", MAIL.port or 25, timeout=30) as server:
        server.send_message(mail)


@holdfast.agent
async def answer(letter: Letter) -> str:
    """One letter: draft, ask, send."""
    text = await draft(letter)
    decision = await holdfast.approve(f"Send this to {letter.sender}?", show=text, edit=True, to="clerks")
    if not decision:
        return f"not answered: {decision.note}"
    await post(letter.sender, f"Re: {letter.subject}", decision.data)
    return "answered"


@holdfast.on.files("drop/*.eml", settle="1s")
def dropped(delivery: holdfast.Delivery) -> holdfast.Start | None:
    """Take a file in the folder drop as a letter. One that came by mail too is the same letter, and the same run."""
    letter = read_letter(Path(delivery.headers["path"]).read_bytes())
    if not letter.sender:
        return None
    return holdfast.Start(answer, letter, id=f"letter-{letter.id}", labels={"from": letter.sender})


@holdfast.step
def letters_of_today() -> list[str]:
    """Look at the runs of the day, as anybody could."""
    with holdfast.sync.open() as hf:
        runs = hf.runs(agent="answer", since="1d", limit=1000)
        told = [
            (run.labels.get("from", "?"), hf.get(run.id).result() if run.status == "completed" else run.status)
            for run in runs
        ]
    return [f"{sender}: {state}" for sender, state in sorted(told)]


@holdfast.agent(schedule=holdfast.Schedule("0 18 * * mon-fri", tz="Europe/Vienna"))
async def digest() -> int:
    """Tell the chief each evening what came in and what became of it."""
    letters = await letters_of_today()
    await post(CHIEF, f"{len(letters)} letters today", "\n".join(letters) or "None.")
    return len(letters)
