"""URLs of queues, ids of messages and options, as tables of cases."""

import pytest

import holdfast
from holdfast import BadArguments
from holdfast.words.queues import BROKERS, Message, address_of, headers_of, key_of, makeshift_key, why_no_key


@pytest.mark.parametrize(
    ("url", "broker", "hosts", "queue", "encrypted"),
    [
        ("nats://host/orders", "nats", ("host:4222",), "orders", False),
        ("tls://a:1,b/orders?subject=o.>&group=g", "nats", ("a:1", "b:4222"), "orders", True),
        ("amqp://host/or%2Fders?vhost=prod", "rabbitmq", ("host:5672",), "or/ders", False),
        ("kafkas://a:1,b:2/orders", "kafka", ("a:1", "b:2"), "orders", True),
        ("sqs://eu-west-1/orders", "sqs", ("eu-west-1",), "orders", False),
        ("valkey://[::1]:7/orders?db=2", "redis", ("[::1]:7",), "orders", False),
        ("rediss://host/orders", "redis", ("host:6379",), "orders", True),
    ],
)
def test_a_url_says_broker_and_queue(url, broker, hosts, queue, encrypted):
    found = address_of(url)
    assert (found.broker.name, found.hosts, found.queue, found.encrypted) == (broker, hosts, queue, encrypted)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        (5, "is not the URL of a queue"),
        ("orders", "names no broker that is known; write one of nats://"),
        ("http://host/orders", "names no broker"),
        ("nats://host", "does not name a host and a queue; write nats://host:4222/orders"),
        ("nats:///orders", "does not name a host and a queue"),
        ("nats://host/a/b", "does not name a host and a queue"),
        ("sqs://", "write sqs://eu-west-1/orders"),
        ("redis://host/orders?vhost=x", "redis has no option 'vhost'; there are group, db"),
        ("nats://u:s3cret@host", "does not name a host"),
        ("nats://u:s3cret@[host/x", "cannot be read"),
        ("nats://u:s3cret@host/x?s3cret", "cannot be read"),
    ],
)
def test_a_url_that_cannot_be_used_is_told_without_its_password(url, says):
    with pytest.raises(BadArguments) as told:
        holdfast.on.queue(url)
    assert says in str(told.value)
    assert "s3cret@" not in str(told.value)


def test_credentials_are_in_the_url_or_in_variables():
    found = {"LOGIN": "me:pa:ss", "TOKEN": "t0ken", "PASSWORD": "pass word"}

    def of(url):
        address = address_of(url).resolved(found)
        return address.user, address.password, address.shown

    assert of("nats://host/q") == (None, None, "nats://host/q")
    assert of("nats://me:p%40ss@host/q") == ("me", "p@ss", "nats://me@host/q")
    assert of("nats://me:env:PASSWORD@host/q") == ("me", "pass word", "nats://me@host/q")
    assert of("nats://env:LOGIN@host/q") == ("me", "pa:ss", "nats://env@host/q")
    assert of("nats://env:TOKEN@host/q") == ("t0ken", None, "nats://env@host/q")
    assert of("nats://t0ken@host/q") == ("t0ken", None, "nats://***@host/q")
    assert of("tls://t0ken@host:4222/q?group=g") == ("t0ken", None, "tls://***@host:4222/q?group=g")
    assert of("redis://t0k%2Fen@[::1]:6379/q")[2] == "redis://***@[::1]:6379/q"
    assert address_of("nats://t0ken@host/q").told(OSError("t0ken is refused")) == "*** is refused"
    with pytest.raises(BadArguments, match="from the variable NONE, which is not set here"):
        of("nats://env:NONE@host/q")
    address = address_of("nats://me:env:PASSWORD@host/q").resolved(found)
    assert address.told(OSError("no pass word for me")) == "no *** for me"
    assert "pass word" not in repr(address)


@pytest.mark.parametrize(
    ("id", "body", "headers", "key"),
    [
        (None, b"", {}, "broker-7"),
        ("n", b'{"n": 5}', {}, "5"),
        ("n", b'{"n": "x"}', {}, "x"),
        ("a.b", b'{"a": {"b": "x"}}', {}, "x"),
        ("n", b'{"n": ""}', {}, None),
        ("n", b'{"n": null}', {}, None),
        ("n", b'{"n": true}', {}, None),
        ("n", b'{"n": 1.5}', {}, None),
        ("n", b"[1]", {}, None),
        ("n", b"no json", {}, None),
        ("n", b"\xff", {}, None),
        ("n", b"[" * 100_000, {}, None),
        ("a.b", b'{"a": 1}', {}, None),
        ("header:message-id", b"", {"message-id": "m"}, "m"),
        ("header:message-id", b"", {}, None),
    ],
)
def test_where_a_message_has_its_id(id, body, headers, key):
    assert key_of(Message(body, headers, "broker-7", 0), id) == key


@pytest.mark.parametrize("url", ["amqp://host/q", "kafka://host/q"])
def test_a_broker_without_ids_needs_to_be_told_where_they_are(url):
    with pytest.raises(
        BadArguments, match=r"gives its messages no id .* Say which field of the message has one: id='order_id'"
    ):
        holdfast.on.queue(url)
    holdfast.on.queue(url, id="order.id")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"id": 5}, "id=5: name a field of the JSON body"),
        ({"id": ""}, "name a field"),
        ({"id": "a..b"}, "name a field"),
        ({"id": "header:X Y"}, "name a field"),
        ({"in_flight": 0}, "in_flight=0: give a number of messages from 1 to 10,000"),
        ({"in_flight": True}, "in_flight=True"),
        ({"redeliver": "0.5s"}, "redeliver='0.5s': give a time from 1s to 12h"),
        ({"redeliver": "1y"}, "is not a duration"),
    ],
)
def test_options_that_cannot_be_used_are_told(options, says):
    with pytest.raises(BadArguments) as told:
        holdfast.on.queue("nats://host/q", **options)
    assert says in str(told.value)


def test_a_trigger_is_named_like_its_function_unless_told():
    def orders(delivery): ...

    assert holdfast.on.queue("nats://host/q")(orders).name == "orders"
    assert holdfast.on.queue("nats://host/q", name="shop.orders")(orders).name == "shop.orders"
    with pytest.raises(BadArguments, match="is not the name of a trigger"):
        holdfast.on.queue("nats://host/q")(lambda _: None)


def test_headers_are_bounded_and_a_message_without_id_has_a_key_for_its_letter():
    many = headers_of({f"H{number}": b"\xff" + b"x" * 5_000 for number in range(100)})
    assert len(many) == 64 and max(map(len, many.values())) == 2_000 and "h0" in many
    one, two = Message(b"x", {}, None, 0), Message(b"y", {}, None, 0)
    assert makeshift_key(one) != makeshift_key(two) and makeshift_key(one).startswith("no-id-")


def test_every_broker_has_an_adapter():
    from pathlib import Path

    import holdfast.worker.brokers as adapters

    found = {file.stem for file in Path(adapters.__file__).parent.glob("*.py")} - {"__init__", "contract"}
    assert {broker.name for broker in BROKERS.values()} == found


@pytest.mark.parametrize(
    ("body", "id", "why"),
    [
        (b"{}", "order_id", "there is no text and no whole number at 'order_id'"),
        (b"no json", "order_id", "its body is not JSON, so there is nothing at 'order_id'"),
        (b"no json", "header:order", "there is no text and no whole number at 'header:order'"),
    ],
)
def test_a_message_without_its_id_says_why(body, id, why):
    told = why_no_key(Message(body, {}, None, 0), id)
    assert why in told and "change id=" in told
