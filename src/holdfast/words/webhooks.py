"""Webhooks: which scheme a sender signs by, and whether a request is that sender's. Data and arithmetic only: no clock, no I/O.

Look here when a genuine request is refused, or to add a scheme.

Every scheme but the bearer token is one idea: an HMAC of a text that holds the body, compared in constant time with each secret, of
which there may be several while one is replaced. Schemes differ in that text, in where the signature stands, and in where the
delivery's id comes from. A header that the scheme reads must come once: of two, a proxy and a server might read another one.

A time or an id that is not part of the signed text can be replaced by anybody that has seen one request. The table is
in docs/triggers.md.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal
from urllib.parse import parse_qsl

from holdfast.errors import BadArguments
from holdfast.values.text import short
from holdfast.words.durations import Duration, milliseconds, spoken

_REFERENCE: Final = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]{0,199}")
_HEADER: Final = re.compile(r"[A-Za-z0-9-]{1,100}")
_TIME: Final = re.compile(r"[1-9][0-9]{0,11}", re.ASCII)  # seconds since 1970, in the one way that they are written
_PLACE: Final = re.compile(r"\{(\w*)\}")
_MOST_SECRETS: Final = 10
_MOST_SIGNATURES: Final = 20  # that a request may offer
_MOST_FIELDS: Final = 1_000
_MOST_HEADERS: Final = 64
_LONGEST_HEADER: Final = 2_000
_CREDENTIALS: Final = re.compile(
    r"x-auth.*|.*-key|.*(cookie|authorization|signature|secret|token|passw|api-?key|jwt|credential|session).*"
)
_AN_ID: Final = "the id of the delivery"
_A_TIME: Final = "a time in whole seconds since 1970"
_ALGORITHMS: Final = ("sha1", "sha256", "sha384", "sha512")
Algorithm = Literal["sha1", "sha256", "sha384", "sha512"]
Encoding = Literal["hex", "base64"]


@dataclass(frozen=True, slots=True)
class Verify:
    """A scheme by which a webhook's sender proves its identity. Made by one of its methods, each named by a scheme.

    Secrets are given by where they are, `"env:GITHUB_SECRET"`: a variable in the environment of `holdfast serve`. The secret
    itself is in no code and in no store. Of several each is accepted, so that a secret can be replaced without a gap.

    Attributes:
        scheme: Its name.
        secrets: Where the secrets are.
        header: The header with the signature.
        signed: The text that is signed, with `{body}`, `{timestamp}` and `{id}`.
        timestamp: The header with the time, if the scheme has one.
        id: The header with the delivery's id, if the scheme has one.
        prefix: Stands before the signature.
        encoding: "hex" or "base64".
        algorithm: The hash function.
        tolerance_ms: By how much the time may differ from ours.

    Example:
        ```python
        verify = holdfast.Verify.github("env:GITHUB_SECRET", "env:GITHUB_SECRET_BEFORE")
        ```
    """

    scheme: str
    secrets: tuple[str, ...]
    header: str = "authorization"
    signed: str = "{body}"
    timestamp: str | None = None
    id: str | None = None
    prefix: str = ""
    encoding: Encoding = "hex"
    algorithm: Algorithm = "sha256"
    tolerance_ms: int = 300_000

    def __post_init__(self) -> None:
        if not self.secrets or len(self.secrets) > _MOST_SECRETS:
            raise BadArguments(f"Verify.{self.scheme} takes 1 to {_MOST_SECRETS} secrets, such as 'env:WEBHOOK_SECRET'")
        for each in self.secrets:
            if not isinstance(each, str) or not _REFERENCE.fullmatch(each):
                raise BadArguments(  # without the text itself, which may be the secret
                    f"Verify.{self.scheme}: a secret is given by the variable of `holdfast serve` that has it, such as "
                    "'env:WEBHOOK_SECRET', and never itself"
                )

    @classmethod
    def standard(cls, *secrets: str, tolerance: Duration = "5m") -> Verify:
        """Make a verifier of Standard Webhooks (standardwebhooks.com), symmetric. Signs id, time and body.

        Raises:
            BadArguments: A secret is not given as `"env:NAME"`.

        Example:
            ```python
            verify = holdfast.Verify.standard("env:WEBHOOK_SECRET")
            ```
        """
        return cls(
            "standard", secrets, "webhook-signature", "{id}.{timestamp}.{body}", "webhook-timestamp", "webhook-id",
            encoding="base64", tolerance_ms=_tolerance(tolerance),
        )  # fmt: skip

    @classmethod
    def github(cls, *secrets: str) -> Verify:
        """Make a verifier of GitHub's webhooks. Signs the body alone: neither the id nor any time.

        Raises:
            BadArguments: A secret is not given as `"env:NAME"`.

        Example:
            ```python
            verify = holdfast.Verify.github("env:GITHUB_SECRET")
            ```
        """
        return cls("github", secrets, "x-hub-signature-256", id="x-github-delivery", prefix="sha256=")

    @classmethod
    def stripe(cls, *secrets: str, tolerance: Duration = "5m") -> Verify:
        """Make a verifier of Stripe's webhooks. Signs time and body; the id is the event's, in the body.

        Raises:
            BadArguments: A secret is not given as `"env:NAME"`.

        Example:
            ```python
            verify = holdfast.Verify.stripe("env:STRIPE_SECRET")
            ```
        """
        return cls("stripe", secrets, "stripe-signature", "{timestamp}.{body}", tolerance_ms=_tolerance(tolerance))

    @classmethod
    def slack(cls, *secrets: str, tolerance: Duration = "5m") -> Verify:
        """Make a verifier of Slack's requests: events, commands, buttons. Signs time and body; the id is in the body.

        Raises:
            BadArguments: A secret is not given as `"env:NAME"`.

        Example:
            ```python
            verify = holdfast.Verify.slack("env:SLACK_SIGNING_SECRET")
            ```
        """
        return cls(
            "slack", secrets, "x-slack-signature", "v0:{timestamp}:{body}", "x-slack-request-timestamp", prefix="v0=",
            tolerance_ms=_tolerance(tolerance),
        )  # fmt: skip

    @classmethod
    def hmac(
        cls,
        *secrets: str,
        header: str,
        signed: str = "{body}",
        timestamp: str | None = None,
        id: str | None = None,
        prefix: str = "",
        encoding: Encoding = "hex",
        algorithm: Algorithm = "sha256",
        tolerance: Duration = "5m",
    ) -> Verify:
        """Make a verifier of any other scheme that signs by an HMAC.

        Args:
            secrets: Where the secrets are.
            header: The header with the signature.
            signed: The text that is signed, with `{body}`, and with `{timestamp}` and `{id}` if these are signed too.
            timestamp: The header with the time, in seconds since 1970. It must be signed.
            id: The header with the delivery's id. Without one, the same body is the same delivery.
            prefix: Stands before the signature in its header.
            encoding: "hex" or "base64".
            algorithm: The hash function.
            tolerance: By how much the time may differ from ours.

        Raises:
            BadArguments: An option cannot be used, or a secret is not given as `"env:NAME"`.

        Example:
            ```python
            verify = holdfast.Verify.hmac(
                "env:SHOP_SECRET", header="X-Shopify-Hmac-Sha256", encoding="base64", id="X-Shopify-Webhook-Id"
            )
            ```
        """
        for name in (header, timestamp, id):
            if name is not None and not (isinstance(name, str) and _HEADER.fullmatch(name)):
                raise BadArguments(
                    f"Verify.hmac: {short(name)} is not the name of a header, such as 'X-Shop-Signature'"
                )
        places = _PLACE.findall(signed) if isinstance(signed, str) else []
        if places.count("body") != 1 or not {*places} <= {"body", "timestamp", "id"} or len(places) != len({*places}):
            raise BadArguments(
                f"Verify.hmac: signed={short(signed)} has {{body}} once, and {{timestamp}} and {{id}} if they are signed"
            )
        if (timestamp is not None) != ("timestamp" in places):
            raise BadArguments(
                "Verify.hmac: timestamp= names the header of a time that is signed, as in signed='{timestamp}.{body}'; one that is "
                "not signed proves nothing"
            )
        if "id" in places and id is None:
            raise BadArguments("Verify.hmac: signed= has {id}, so give its header as id=")
        if _touches(signed):
            raise BadArguments(
                f"Verify.hmac: signed={short(signed)} does not tell where the id ends, so whoever saw a request could move a part "
                "of what is beside it into it, or out of it, and send it again under another id. Write what the sender puts "
                "between them, as in '{id}.{body}'; a sender that puts nothing there cannot be told from who has seen it"
            )
        if encoding not in ("hex", "base64") or algorithm not in _ALGORITHMS:
            raise BadArguments(
                f"Verify.hmac: encoding={short(encoding)}, algorithm={short(algorithm)}: choose 'hex' or 'base64', and one of "
                f"{', '.join(_ALGORITHMS)}"
            )
        if not isinstance(prefix, str) or len(prefix) > _LONGEST_HEADER:
            raise BadArguments(f"Verify.hmac: prefix={short(prefix)} stands before a signature, such as 'sha256='")
        return cls(
            "hmac", secrets, header.lower(), signed, timestamp and timestamp.lower(), id and id.lower(), prefix, encoding,
            algorithm, _tolerance(tolerance),
        )  # fmt: skip

    @classmethod
    def bearer(cls, *secrets: str, id: str | None = None) -> Verify:
        """Make a verifier of senders that have a token, `Authorization: Bearer TOKEN`. Signs nothing: any reader has it.

        Args:
            secrets: Where the tokens are.
            id: The header with the delivery's id. Without one, the same body is the same delivery.

        Raises:
            BadArguments: A secret is not given as `"env:NAME"`.

        Example:
            ```python
            verify = holdfast.Verify.bearer("env:HOOK_TOKEN", id="X-Request-Id")
            ```
        """
        if id is not None and not (isinstance(id, str) and _HEADER.fullmatch(id)):
            raise BadArguments(f"Verify.bearer: id={short(id)} is not the name of a header, such as 'X-Request-Id'")
        return cls("bearer", secrets, id=id and id.lower(), prefix="Bearer ")

    def __repr__(self) -> str:
        return f"Verify.{self.scheme}({', '.join(map(repr, self.secrets))})"


def _tolerance(tolerance: Duration) -> int:
    found = milliseconds(tolerance)
    if not 1_000 <= found <= 86_400_000:
        raise BadArguments(f"tolerance={short(tolerance)}: give a time from 1s to 1d, by which clocks may differ")
    return found


def stored(verify: Verify) -> dict[str, Any]:
    """Write a verifier as the store keeps it; of its secrets that is where they are."""
    return {**asdict(verify), "secrets": list(verify.secrets)}


def loaded(told: Mapping[str, Any]) -> Verify:
    """Read a verifier that `stored` wrote."""
    return Verify(**{**told, "secrets": tuple(told["secrets"])})


# Secrets


def secret_bytes(verify: Verify, text: str) -> bytes:
    """Read a secret as the scheme has it; `BadArguments`, without its text, if it is none."""
    if not text.strip():
        raise BadArguments("it is empty")
    if verify.scheme == "bearer" and text != text.strip():
        raise BadArguments("it has white space around it, which no header has")
    if verify.scheme != "standard":
        return text.encode(errors="surrogateescape")
    try:
        found = base64.b64decode(text.strip().removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        raise BadArguments(
            "it is no secret of Standard Webhooks, which is whsec_ and random bytes in base64, as `echo whsec_$(openssl rand "
            "-base64 32)` makes one"
        ) from None
    if not found:
        raise BadArguments("it is empty")
    return found


# Requests


class Forged(Exception):
    """A request that cannot be shown to be the sender's."""


@dataclass(frozen=True, slots=True)
class Verified:
    """A request that is the sender's: its id, and what is to be answered at once if it only asks whether we are there."""

    id: str
    challenge: str | None = None


def check(
    verify: Verify, secrets: Sequence[bytes], headers: Iterable[tuple[str, str]], body: bytes, now_ms: int
) -> Verified:
    """Tell a delivery's id, or raise `Forged`. `headers` have names in lower case, and each as often as it came."""
    found = _Headers(headers)
    if verify.scheme == "bearer":
        scheme, _, given = found.one(verify.header, "Authorization: Bearer TOKEN").partition(" ")
        token = hashlib.sha256(_bytes(given.strip())).digest()  # so that not even the length of a secret can be timed
        fits = [hmac.compare_digest(token, hashlib.sha256(secret).digest()) for secret in secrets]
        if scheme.lower() != "bearer" or not any(fits):
            raise Forged("the token is not the one that is expected, in Authorization: Bearer TOKEN")
        return Verified(found.one(verify.id, _AN_ID) if verify.id else _digest(body))
    offered, at = _signatures(verify, found)
    if "{timestamp}" in verify.signed:
        _check_time(at, now_ms, verify.tolerance_ms)
    id = found.one(verify.id, _AN_ID) if verify.id else ""
    _check_boundaries(verify, id)
    parts = {"body": body, "timestamp": at.encode(), "id": _bytes(id)}
    text = b"".join(
        parts[piece] if nth % 2 else piece.encode() for nth, piece in enumerate(_PLACE.split(verify.signed))
    )
    made = [_signature(verify, secret, text) for secret in secrets]
    fits = [hmac.compare_digest(_bytes(given), each) for each in made for given in offered[:_MOST_SIGNATURES]]
    if not any(fits):
        raise Forged(
            f"the signature in {verify.header} does not fit: the sender has another secret, signs something else than the "
            f"{_signed(verify)}, or the request was changed on its way"
        )
    if verify.id is not None:
        return Verified(id)
    return _inside(verify, body, at)


def _touches(signed: str) -> bool:
    """Is there nothing between the id and another part of what is signed?

    A time may stand beside the body: of all ways to divide digits there is one whose time is near ours, because one digit more or
    less is ten times as much, and no time begins with 0.
    """
    return re.search(r"\}\{id\}|\{id\}\{", signed) is not None


def _check_boundaries(verify: Verify, id: str) -> None:
    """Refuse an id with what separates it from the rest of what is signed: parts of the body could be read as parts of the id."""
    if _touches(verify.signed):  # declared by an older version
        raise Forged("what is signed does not tell where the id ends; the webhook must be declared otherwise")
    pieces = _PLACE.split(verify.signed)  # text, place, text, place, text
    if "id" not in pieces[1::2]:
        return
    at = 2 * pieces[1::2].index("id") + 1
    before, after = pieces[at - 1] if at > 1 else "", pieces[at + 1] if at < len(pieces) - 2 else ""
    if (after and (id + after).find(after) < len(id)) or (before and (before + id).rfind(before) > 0):
        raise Forged(f"the header {verify.id} has in it what separates it from the rest that is signed")


class _Headers:
    """Headers, each of which must come once."""

    def __init__(self, headers: Iterable[tuple[str, str]]) -> None:
        self._all: dict[str, list[str]] = {}
        for name, value in headers:
            self._all.setdefault(name, []).append(value)

    def one(self, name: str, expected: str) -> str:
        values = self._all.get(name, [])
        if len(values) > 1:
            raise Forged(f"the header {name} comes {len(values)} times, and must come once")
        if not values or not values[0]:
            raise Forged(f"the header {name} is missing; expected {expected}")
        return values[0]


def _bytes(text: str) -> bytes:
    """Write a header as it came."""
    return text.encode("latin-1", errors="replace")


def _signature(verify: Verify, secret: bytes, text: bytes) -> bytes:
    made = hmac.new(secret, text, verify.algorithm)
    return made.hexdigest().encode() if verify.encoding == "hex" else base64.b64encode(made.digest())


def _signed(verify: Verify) -> str:
    """Name what is signed: 'body', 'time and body'."""
    names = {"body": "body", "timestamp": "time", "id": "id"}
    return " and ".join(names[place] for place in _PLACE.findall(verify.signed))


def _expected(verify: Verify) -> str:
    """Say what the header of the signature looks like."""
    begins = {"stripe": "t=SECONDS,v1=", "standard": "v1,"}.get(verify.scheme, verify.prefix)
    return f"{begins}SIGNATURE, an HMAC-{verify.algorithm.upper()} of the {_signed(verify)} in {verify.encoding}"


def _signatures(verify: Verify, headers: _Headers) -> tuple[list[str], str]:
    """List the signatures that a request offers, and the time that it says."""
    given = headers.one(verify.header, _expected(verify))
    if verify.scheme == "stripe":
        pairs = [part.strip().partition("=") for part in given.split(",")]
        times = [value for name, _, value in pairs if name == "t"]
        if len(times) != 1:
            raise Forged(f"the header stripe-signature does not say one time; expected {_expected(verify)}")
        return [value for name, _, value in pairs if name == "v1"], times[0]
    at = headers.one(verify.timestamp, _A_TIME) if verify.timestamp else ""
    if verify.scheme == "standard":
        return [part[3:] for part in given.split(" ") if part.startswith("v1,")], at
    if not given.startswith(verify.prefix):
        raise Forged(f"the header {verify.header} does not begin with {verify.prefix!r}; expected {_expected(verify)}")
    return [given[len(verify.prefix) :]], at


def _check_time(at: str, now_ms: int, tolerance_ms: int) -> None:
    if not _TIME.fullmatch(at):
        raise Forged(f"the time that was signed is not {_A_TIME}")
    late_ms = now_ms - int(at) * 1000
    if abs(late_ms) > tolerance_ms:
        how = "late" if late_ms > 0 else "early"
        raise Forged(
            f"by the time that was signed it is {spoken(abs(late_ms) / 1000)} {how}, and {spoken(tolerance_ms / 1000)} are the "
            "most: set the clocks, or sign it anew"
        )


def _digest(*parts: bytes) -> str:
    return f"sha256:{hashlib.sha256(b'.'.join(parts)).hexdigest()}"


def _inside(verify: Verify, body: bytes, at: str) -> Verified:
    """Find the id in a body that is the sender's. Where there is none, the same body at the same time is the same delivery."""
    other = _digest(body) if verify.scheme == "hmac" else _digest(at.encode(), body)
    if verify.scheme == "hmac":
        return Verified(other)
    told = _object(body)
    if verify.scheme == "stripe":
        return Verified(_text(told, "id") or other)
    if told.get("type") == "url_verification" and (challenge := _text(told, "challenge")):
        return Verified("", challenge)
    if not told:
        try:
            fields = dict(parse_qsl(body.decode(errors="replace"), max_num_fields=_MOST_FIELDS))
        except ValueError:
            fields = {}
        told = _object(fields["payload"].encode()) if "payload" in fields else fields
    return Verified(_text(told, "event_id") or _text(told, "trigger_id") or other)


def _object(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _text(told: Mapping[str, Any], name: str) -> str:
    found = told.get(name)
    return found if isinstance(found, str) else ""


def kept_headers(verify: Verify, headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Choose the headers that are kept with a delivery: none with credentials or a signature, and not without bound."""
    found: dict[str, str] = {}
    for name, value in headers:
        kept = name in (verify.id, verify.timestamp) or not _CREDENTIALS.fullmatch(name)
        if kept and name != verify.header and len(found) < _MOST_HEADERS:
            found.setdefault(name, value[:_LONGEST_HEADER].replace("\0", ""))
    return found
