"""The world around the inbox: a mail server with a mailbox for everybody, and people who write letters.

    python world.py                              # the mail server
    python world.py write FROM SUBJECT TEXT      # somebody writes to us; the same words again are the same letter
    python world.py read NAME                    # what is in somebody's mailbox

A mailbox shows a mail once, by its Message-ID, as most do. How often each came is counted, so that one can see it.
"""

import asyncio
import json
import os
import smtplib
import sys
from email import message_from_bytes, policy
from email.message import EmailMessage
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from aiosmtpd.smtp import SMTP

PORT = urlsplit(os.environ.get("HOLDFAST_SMTP_URL", "smtp://127.0.0.1:8725")).port or 8725
INBOX_PORT = int(os.environ.get("INBOX_PORT", "8726"))
BOOKS = Path(os.environ.get("WORLD", "world"))


class Mailboxes:
    """What aiosmtpd calls for a mail: it is written down before the sender hears of it."""

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802 - aiosmtpd calls it so
        mail = message_from_bytes(envelope.content, policy=policy.default)
        for to in envelope.rcpt_tos:
            told = {"id": mail["Message-ID"], "subject": mail["Subject"], "text": mail.get_content()}
            with (BOOKS / to).open("a") as box:
                box.write(json.dumps(told) + "\n")
        return "250 OK"


def mails(name: str) -> list[dict[str, Any]]:
    """What is in a mailbox: each mail once, with how often it came."""
    found: dict[str, dict[str, Any]] = {}
    box = BOOKS / name
    for line in box.read_text().splitlines() if box.exists() else ():
        mail = json.loads(line)
        found.setdefault(mail["id"], {**mail, "came": 0})["came"] += 1
    return sorted(found.values(), key=lambda mail: str(mail["subject"]))  # mail comes in any order


def write(sender: str, subject: str, text: str) -> str:
    """Send a letter to the inbox; returns what its door said."""
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = sender, "inbox@example.com", subject
    mail["Message-ID"] = f"<{sha256(f'{sender} {subject} {text}'.encode()).hexdigest()[:16]}@world>"
    mail.set_content(text)
    with smtplib.SMTP("127.0.0.1", INBOX_PORT, timeout=30) as server:
        server.ehlo_or_helo_if_needed()
        server.mail(sender)
        server.rcpt("inbox@example.com")
        code, said = server.data(bytes(mail))
    return f"{code} {said.decode()}"


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(lambda: SMTP(Mailboxes()), "127.0.0.1", PORT)
    print(f"the world's mail is at port {PORT}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["write", sender, subject, text]:
            print(write(sender, subject, text))
        case ["read", name]:
            for mail in mails(name):
                print(f"{mail['subject']}\n  " + "\n  ".join(mail["text"].strip().splitlines()))
        case _:
            BOOKS.mkdir(exist_ok=True)
            asyncio.run(serve())
