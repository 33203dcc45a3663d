"""Verifiers: examples that senders publish, what cannot be declared, and what is kept of a request. The matrix is in tests/http."""

import hashlib
import hmac
import json

import pytest

from holdfast import BadArguments, Verify
from holdfast.words.webhooks import Forged, check, kept_headers, loaded, secret_bytes, stored

# What senders publish for those who write a verifier.
PUBLISHED = {
    "github": (
        Verify.github("env:S"), "It's a Secret to Everybody", 0, b"Hello, World!",
        {"x-hub-signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
         "x-github-delivery": "72d3162e"}, "72d3162e",
    ),
    "standard": (
        Verify.standard("env:S"), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", 1614265330, b'{"test": 2432232314}',
        {"webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "webhook-timestamp": "1614265330",
         "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="}, "msg_p5jXN8AQM9LWM0D4loKWxJek",
    ),
    "slack": (
        Verify.slack("env:S"), "8f742231b10e8888abcd99yyyzzz85a5", 1531420618,
        (b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar"
        b"&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text="
        b"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
        b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"),
        {"x-slack-request-timestamp": "1531420618",
         "x-slack-signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"},
        "398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c",
    ),
}  # fmt: skip


@pytest.mark.parametrize("sender", PUBLISHED)
def test_what_senders_publish_as_an_example(sender):
    verify, secret, at, body, headers, id = PUBLISHED[sender]
    secrets = [b"another", secret_bytes(verify, secret)]
    assert check(verify, secrets, headers.items(), body, at * 1000).id == id
    with pytest.raises(Forged, match="does not fit"):
        check(verify, secrets[:1], headers.items(), body, at * 1000)
    with pytest.raises(Forged, match="does not fit"):
        check(verify, secrets, headers.items(), body + b" ", at * 1000)


def test_the_time_is_told_in_words():
    verify, secret, at, body, headers, _ = PUBLISHED["standard"]
    secrets = [secret_bytes(verify, secret)]
    for late_s, says in ((301, "it is 5 min late"), (-7200, "it is 2 h early, and 5 min are the most")):
        with pytest.raises(Forged, match=says):
            check(verify, secrets, headers.items(), body, (at + late_s) * 1000)
    for late_s in (300, -300):
        assert check(verify, secrets, headers.items(), body, (at + late_s) * 1000)


def test_a_full_stop_in_an_id_of_standard_webhooks_is_refused():
    """The text that is signed is `id.time.body`: with one in the id, a part of the body could be taken for the time."""
    verify, secret, _, body, headers, _ = PUBLISHED["standard"]
    moved = headers | {"webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330", "webhook-timestamp": "1614265331"}
    with pytest.raises(Forged, match="what separates it"):
        check(verify, [secret_bytes(verify, secret)], moved.items(), body, 1614265331_000)


@pytest.mark.parametrize(
    ("signed", "id", "body", "moved", "rest"),
    [
        ("{id}.{body}", "7", "a.b", "7.a", "b"),
        ("v1:{id}.{body}", "7", "a.b", "7.a", "b"),
        ("{id}--{body}", "7", "-b", "7-", "b"),
        ("{body}|{id}", "7", "a|b", "b|7", "a"),
        ("{timestamp}id{id}id{body}", "7", "aidb", "7ida", "b"),
    ],
)
def test_what_is_signed_of_the_body_cannot_be_moved_into_the_id(signed, id, body, moved, rest):
    verify = Verify.hmac("env:A", header="X", id="I", signed=signed, timestamp="T" if "{timestamp}" in signed else None)
    text = signed.replace("{id}", id).replace("{body}", body).replace("{timestamp}", "5")
    headers = {"x": hmac.new(b"k", text.encode(), "sha256").hexdigest(), "t": "5"}
    assert text == signed.replace("{id}", moved).replace("{body}", rest).replace("{timestamp}", "5")
    assert check(verify, [b"k"], (headers | {"i": id}).items(), body.encode(), 5_000).id == id
    with pytest.raises(Forged, match="what separates it"):
        check(verify, [b"k"], (headers | {"i": moved}).items(), rest.encode(), 5_000)


def test_a_digit_cannot_be_moved_between_the_id_and_the_time():
    """A declaration of an older version, in which they touch: nothing is taken for it any more."""
    old = loaded({**stored(Verify.hmac("env:A", header="X", id="I", timestamp="T", signed="{id}.{timestamp}.{body}")),
                  "signed": "{id}{timestamp}.{body}"})  # fmt: skip
    made = hmac.new(b"k", b"order101700000000.{}", "sha256").hexdigest()
    for id, at in (("order10", "1700000000"), ("order1", "01700000000")):
        with pytest.raises(Forged):
            check(old, [b"k"], {"x": made, "i": id, "t": at}.items(), b"{}", 1_700_000_000_000)


@pytest.mark.parametrize(("signed", "body", "at", "moved"), [
    ("{timestamp}{body}", b"5", "1700000000", ("17000000005", b"")),
    ("{timestamp}{body}", b"5", "1700000000", ("170000000", b"05")),
    ("{body}{timestamp}", b"10", "1700000000", ("01700000000", b"1")),
    ("{body}{timestamp}", b"1", "1700000000", ("11700000000", b"")),
])  # fmt: skip
def test_a_time_beside_the_body_is_divided_in_one_way(signed, body, at, moved):
    verify = Verify.hmac("env:A", header="X", timestamp="T", signed=signed)
    text = signed.encode().replace(b"{timestamp}", at.encode()).replace(b"{body}", body)
    assert text == signed.encode().replace(b"{timestamp}", moved[0].encode()).replace(b"{body}", moved[1])
    made = hmac.new(b"k", text, "sha256").hexdigest()
    assert check(verify, [b"k"], {"x": made, "t": at}.items(), body, 1_700_000_000_000)
    with pytest.raises(Forged):
        check(verify, [b"k"], {"x": made, "t": moved[0]}.items(), moved[1], 1_700_000_000_000)


@pytest.mark.parametrize(
    ("body", "id"),
    [
        ({"event_id": "Ev1", "trigger_id": "x"}, "Ev1"),
        ({"trigger_id": "13.37"}, "13.37"),
        (b"payload=%7B%22trigger_id%22%3A%20%2299.1%22%7D", "99.1"),
        (b"trigger_id=7.7&text=a%26b", "7.7"),
        ({"event_id": 5}, "sha256:"),
        (b"payload=nonsense", "sha256:"),
        (b"[" * 50_000, "sha256:"),
        (b"&".join(b"a%d=1" % n for n in range(2_000)), "sha256:"),
        (b"\xff\xfe", "sha256:"),
    ],
)
def test_the_id_of_what_slack_sends(body, id):
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    made = hmac.new(b"s", b"v0:1000:" + text, hashlib.sha256).hexdigest()
    headers = {"x-slack-request-timestamp": "1000", "x-slack-signature": f"v0={made}"}
    assert check(Verify.slack("env:S"), [b"s"], headers.items(), text, 1_000_000).id.startswith(id)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (Verify.github, "takes 1 to 10 secrets"),
        (lambda: Verify.github(*["env:A"] * 11), "takes 1 to 10 secrets"),
        (lambda: Verify.github("hunter2"), "never itself"),
        (lambda: Verify.github("env:"), "never itself"),
        (lambda: Verify.github(5), "never itself"),
        (lambda: Verify.stripe("env:A", tolerance="0s"), "from 1s to 1d"),
        (lambda: Verify.stripe("env:A", tolerance="2d"), "from 1s to 1d"),
        (lambda: Verify.bearer("env:A", id="a b"), "is not the name of a header"),
        (lambda: Verify.hmac("env:A", header=""), "is not the name of a header"),
        (lambda: Verify.hmac("env:A", header="X", signed="{time}"), "has {body} once"),
        (lambda: Verify.hmac("env:A", header="X", signed="{body}{body}"), "has {body} once"),
        (lambda: Verify.hmac("env:A", header="X", signed="{body}", timestamp="T"), "proves nothing"),
        (lambda: Verify.hmac("env:A", header="X", signed="{timestamp}{body}"), "a time that is signed"),
        (lambda: Verify.hmac("env:A", header="X", signed="{id}{body}"), "so give its header"),
        (lambda: Verify.hmac("env:A", header="X", id="I", signed="{id}{body}"), "does not tell where the id ends"),
        (lambda: Verify.hmac("env:A", header="X", id="I", signed="v1{body}{id}"), "as in '{id}.{body}'"),
        *(
            (lambda signed=signed: Verify.hmac("env:A", header="X", id="I", timestamp="T", signed=signed), "another id")
            for signed in (
                "{id}{timestamp}.{body}",
                "{timestamp}{id}.{body}",
                "{body}.{id}{timestamp}",
                "{id}{timestamp}{body}",
            )
        ),
        (lambda: Verify.hmac("env:A", header="X", encoding="base32"), "choose 'hex' or 'base64'"),
        (lambda: Verify.hmac("env:A", header="X", algorithm="md5"), "and one of sha1, sha256"),
        (lambda: Verify.hmac("env:A", header="X", prefix=5), "stands before a signature"),
    ],
)
def test_verifiers_that_are_none(make, says):
    with pytest.raises(BadArguments) as refused:
        make()
    assert says in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("verify", "headers", "says"),
    [
        (Verify.github("env:A"), [],
         "x-hub-signature-256 is missing; expected sha256=SIGNATURE, an HMAC-SHA256 of the body in hex"),
        (Verify.github("env:A"), [("x-hub-signature-256", "sha1=x")], "does not begin with 'sha256='; expected sha256=SIGNATURE"),
        (Verify.github("env:A"), [("x-hub-signature-256", "sha256=x")],
         "x-github-delivery is missing; expected the id of the delivery"),
        (Verify.github("env:A"), [("x-hub-signature-256", "a"), ("x-hub-signature-256", "b")], "comes 2 times, and must come once"),
        (Verify.standard("env:A"), [],
         "webhook-signature is missing; expected v1,SIGNATURE, an HMAC-SHA256 of the id and time and body in"),
        (Verify.standard("env:A"), [("webhook-signature", "v1,x")],
         "webhook-timestamp is missing; expected a time in whole seconds"),
        (Verify.slack("env:A"), [("x-slack-signature", "v0=x"), ("x-slack-request-timestamp", "noon")],
         "is not a time in whole seconds"),
        (Verify.slack("env:A"), [("x-slack-signature", "v0=x"), ("x-slack-request-timestamp", "1")],
         "set the clocks, or sign it anew"),
        (Verify.stripe("env:A"), [("stripe-signature", "v1=x")], "does not say one time; expected t=SECONDS,v1=SIGNATURE"),
        (Verify.bearer("env:A"), [], "authorization is missing; expected Authorization: Bearer TOKEN"),
        (Verify.bearer("env:A"), [("authorization", "Basic x")], "expected, in Authorization: Bearer TOKEN"),
        (Verify.hmac("env:A", header="X-Me"), [("x-me", "x")], "the signature in x-me does not fit: the sender has another secret"),
    ],
)  # fmt: skip
def test_what_is_refused_says_what_was_expected(verify, headers, says):
    with pytest.raises(Forged) as refused:
        check(verify, [b"hunter2"], headers, b"{}", 1_700_000_000_000)
    assert says in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("secret", ["", " ", "whsec_", "whsec_!!!", "a b"])
def test_secrets_of_standard_webhooks_that_are_none(secret):
    with pytest.raises(BadArguments) as refused:
        secret_bytes(Verify.standard("env:S"), secret)
    assert secret.strip() == "" or secret not in str(refused.value)


def test_a_verifier_is_stored_and_read():
    for verify in (Verify.standard("env:A", "env:B"), Verify.hmac("env:A", header="X", id="Y"), Verify.bearer("env:T")):
        assert loaded(json.loads(json.dumps(stored(verify)))) == verify
    assert repr(Verify.github("env:A")) == "Verify.github('env:A')"


def test_what_is_kept_of_the_headers():
    """Nothing that proves anything, and not without bound."""
    sent = [("x-hub-signature-256", "s"), ("x-hub-signature", "s"), ("authorization", "t"), ("cookie", "c"),
            ("x-gitlab-token", "t"), ("x-api-key", "k"), ("x-github-delivery", "7"), ("x-github-event", "push"),
            ("x-github-event", "second"),
            ("long", "x" * 5_000), ("nul", "a\0b")]  # fmt: skip
    sent += [(name, "c") for name in (
        "x-auth", "x-auth-user", "x-functions-key", "x-jwt-assertion", "x-amz-credential", "x-passwd", "x-session-id", "set-cookie",
        "x-amz-security-token", "x-client-secret", "proxy-authorization", "x-apikey", "x-userpassword",
    )]  # fmt: skip
    sent += [(f"x-{n}", "") for n in range(100)]
    kept = kept_headers(Verify.github("env:S"), sent)
    assert list(kept)[:4] == ["x-github-delivery", "x-github-event", "long", "nul"]
    assert (kept["x-github-event"], len(kept["long"]), kept["nul"], len(kept)) == ("push", 2_000, "ab", 64)
    assert "x-token-id" in kept_headers(Verify.bearer("env:S", id="X-Token-Id"), [("x-token-id", "7")])
