"""The blocks of docs/guide/notifications.md, run as they stand there."""

import asyncio
import base64
import time

from tests.docs.pages import module

import holdfast.testing
from holdfast.words.notifications import signatures

PAGE = "docs/guide/notifications.md"


def test_register():
    async def main():
        async with holdfast.testing.open() as hf:
            page = module(PAGE, "guide: notify")
            for _ in range(2):
                await page.tell_operators(hf)
            found = {info.url: (info.format, info.agent) for info in await hf.notifications()}
            assert found == {
                "https://ops.example.com/…": ("json", None),
                "env:SLACK_URL": ("slack", None),
                "mailto:ana@example.com": ("mail", "payroll"),
            }

    asyncio.run(main())


def test_a_receiver_verifies():
    is_genuine = module(PAGE, "guide: receiver").is_genuine
    key, at = b"some random bytes", str(int(time.time()))
    secret = f"whsec_{base64.b64encode(key).decode()}"
    signed = signatures([b"another", key], "msg_1", at, b"{}")
    headers = {"webhook-id": "msg_1", "webhook-timestamp": at, "webhook-signature": signed}
    assert is_genuine(secret, headers, b"{}")
    assert not is_genuine(secret, headers, b"{} ")
    assert not is_genuine(secret, headers | {"webhook-id": "msg_2"}, b"{}")
    assert not is_genuine(secret, headers | {"webhook-timestamp": "1700000000"}, b"{}")
    assert not is_genuine("whsec_AAAA", headers, b"{}")
