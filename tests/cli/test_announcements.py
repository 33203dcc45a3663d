"""`holdfast publish`: an announcement from a shell."""

import holdfast.sync

URL = "sqlite:holdfast.db"


def test_an_announcement_is_published_once(cli):
    with holdfast.sync.open(URL):
        pass
    told = cli.json("publish", "order.paid", '{"order": 7}', "--key", "k")
    assert (told["name"], told["value"], told["key"]) == ("order.paid", {"order": 7}, "k")
    assert (told["created"], told["before"], told["differs"]) == (True, None, False)
    again = cli("publish", "order.paid", '{"order": 7}', "--key", "k").output
    assert "'order.paid' was published before with this key, at 20" in again
    assert f": {told['id']}. Nothing was sent again." in again
    assert "Published" not in again and "another" not in again
    other = cli("publish", "order.paid", "other", "--key", "k").output
    assert "Its value was another, and that one holds; publish this one with another key." in other
    document = cli.json("publish", "order.paid", "other", "--key", "k")
    assert (document["id"], document["created"], document["differs"]) == (told["id"], False, True)
    assert document["before"].startswith("20")
    assert (
        "Note: {order: 7} begins like JSON and is none, so it is sent as text."
        in cli("publish", "order.paid", "{order: 7}").stderr
    )
    refused = cli("publish", "a b")
    assert refused.exit_code and "cannot name an announcement" in refused.output
