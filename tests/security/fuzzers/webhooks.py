"""Webhooks that are nearly the sender's: none is taken of which a signed piece was changed, and what is said of each is short."""

from __future__ import annotations

import random
from collections import Counter

from tests.http.senders import NEW, OLD, SCHEMES, in_environment
from tests.security.fuzzers.inputs import mangled
from tests.security.fuzzers.texts import Fixed, refused

from holdfast.words.triggers import action_key, delivery_key
from holdfast.words.webhooks import Forged, check, kept_headers, secret_bytes

ID, AT = "msg_2KWPBgLlAfxd", 1_700_000_000
BY_NAME = {scheme.name: scheme for scheme in SCHEMES}


class Webhooks:
    """A request of one scheme, with a few changes to its headers and its body."""

    name = "webhooks"

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    def make(self, dice: random.Random) -> tuple[Fixed, list[tuple[str, str]], bytes]:
        """The scheme, the headers, the body."""
        scheme = dice.choice(SCHEMES)
        body = scheme.body(ID)
        pairs = [(name.lower(), value) for name, value in scheme.headers(ID, AT, body, dice.choice([NEW, OLD])).items()]
        for _ in range(dice.choice([0, 1, 1, 1, 2, 4])):
            how, at = dice.random(), dice.randrange(len(pairs)) if pairs else 0
            if how < 0.35 and pairs:
                pairs[at] = pairs[at][0], _latin(mangled(dice, pairs[at][1]))
            elif how < 0.45 and pairs:
                pairs.append(dice.choice(pairs))
            elif how < 0.5 and pairs:
                del pairs[at]
            elif how < 0.55 and pairs:
                pairs[at] = mangled(dice, pairs[at][0]).lower(), pairs[at][1]
            elif how < 0.6 and pairs:
                pairs[at] = pairs[at][0], dice.choice(pairs)[1]
            else:
                body = mangled(dice, body.decode("latin-1")).encode("utf-8", "surrogatepass")
        dice.shuffle(pairs)
        return Fixed(scheme.name), pairs, body

    def check(self, case: tuple[Fixed, list[tuple[str, str]], bytes]) -> None:
        name, pairs, body = case
        scheme = BY_NAME[name]
        secrets = [secret_bytes(scheme.verify, in_environment(scheme, secret)) for secret in (NEW, OLD)]
        kept = kept_headers(scheme.verify, pairs)
        assert scheme.header.lower() not in kept
        verified, said = refused(check, scheme.verify, secrets, pairs, body, AT * 1000, by=(Forged,))
        if verified is None:
            self.seen[f"{name}: refused"] += 1
            assert NEW not in said
            return
        self.seen[f"{name}: taken"] += 1
        assert len(action_key("it", delivery_key(verified.id), 0)) < 200
        assert "body" not in scheme.signs or body == scheme.body(ID)
        assert "id" not in scheme.signs or verified.id == ID
        times = [value for header, value in pairs if header and header == scheme.time_header.lower()]  # some have none
        assert "time" not in scheme.signs or times in ([str(AT)], [])
        proofs = [value for header, value in pairs if header == scheme.header.lower()]
        assert len(proofs) == 1


def _latin(value: str) -> str:
    return value.encode("latin-1", errors="replace").decode("latin-1")
