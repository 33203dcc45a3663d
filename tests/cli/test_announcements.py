"""`holdfast publish`: an announcement from a shell."""

import holdfast.sync

URL = "sqlite:holdfast.db"


def test_an_announcement_is_published_once(cli):
    with holdfast.sync.open(URL):
        pass
    told = cli.json("publish", "order.paid", '{"order": 7}', "--key", "k")
    assert (told["name"], told["value"], told["key"]) == ("order.paid", {"order": 7}, "k")
    again = cli("publish", "order.paid", "other", "--key", "k")
    assert f"Published 'order.paid': {told['id']}." in again.output
    refused = cli("publish", "a b")
    assert refused.exit_code and "cannot name an announcement" in refused.output
