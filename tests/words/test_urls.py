"""URLs as they are shown: all that helps, and nothing that could be a secret."""

import random

import pytest

from holdfast.words.urls import redacted

CLUSTER = "temporal://127.0.0.1:7233/default"
SECRET = "hunter2"


@pytest.mark.parametrize(("url", "shown"), [
    (CLUSTER, CLUSTER),
    (f"{CLUSTER}?side=$HOLDFAST_SIDE", f"{CLUSTER}?side=$HOLDFAST_SIDE"),
    (f"{CLUSTER}?side=$HOLDFAST_SIDE&queue=night", f"{CLUSTER}?side=$HOLDFAST_SIDE&queue=night"),
    (f"{CLUSTER}?queue=a.b-c&events=500&tls=on&inputs=full", f"{CLUSTER}?queue=a.b-c&events=500&tls=on&inputs=full"),
    (f"{CLUSTER}?blobs=/var/blobs&ca=ca.pem&cert=c.pem&key=k.pem", f"{CLUSTER}?blobs=/var/blobs&ca=ca.pem&cert=c.pem&key=k.pem"),
    (f"{CLUSTER}?api_key_file=/run/key", f"{CLUSTER}?api_key_file=/run/key"),
    (f"{CLUSTER}?side=postgresql://u@127.0.0.1:15501/side", f"{CLUSTER}?side=***"),
    (f"{CLUSTER}?side=postgresql://u:{SECRET}@h:1/side&queue=q", f"{CLUSTER}?side=***&queue=q"),
    (f"{CLUSTER}?queue=q&side=postgresql://u:{SECRET}@h:1/side?sslmode=require", f"{CLUSTER}?queue=q&side=***"),
    (f"{CLUSTER}?side=postgresql%3A%2F%2Fu%3A{SECRET}%40h%2Fdb&queue=q", f"{CLUSTER}?side=***&queue=q"),
    (f"{CLUSTER}?side=sqlite:side.db", f"{CLUSTER}?side=***"),
    (f"{CLUSTER}?side=postgresql://u@h/db?a=b&password={SECRET}", f"{CLUSTER}?side=***&password=***"),
    (f"{CLUSTER}?side=postgresql://u:a&queue={SECRET}@h/db", f"{CLUSTER}?side=***"),
    (f"{CLUSTER}?side=postgresql://u:a&{SECRET}@h/db&queue=q", f"{CLUSTER}?side=***"),
    (f"{CLUSTER}?side=$S&side=postgresql://u:{SECRET}@h/db", f"{CLUSTER}?side=$S&side=***"),
    (f"{CLUSTER}?api_key={SECRET}", f"{CLUSTER}?api_key=***"),
    (f"{CLUSTER}?queue=q;api_key={SECRET}", f"{CLUSTER}?queue=***"),
    (f"{CLUSTER}?{SECRET}", f"{CLUSTER}?***"),
    (f"{CLUSTER}?queue=q&{SECRET}", f"{CLUSTER}?queue=q&***"),
    (f"{CLUSTER}?{SECRET}=x!", f"{CLUSTER}?***"),
    (f"temporal://{SECRET}@h:7233/ns", "temporal://***@h:7233/ns"),
    (f"temporal:{SECRET}@h:7233/ns", "temporal:***@h:7233/ns"),
    (f"temporal://u:{SECRET}@h:7233/ns?side=$S", "temporal://***@h:7233/ns?side=$S"),
    (f"temporal://u:12?queue={SECRET}@h:7233/ns", "temporal://***@h:7233/ns"),
    ("temporal:127.0.0.1/default", "temporal:127.0.0.1/default"),
    ("temporal:127.0.0.1:7233/default", "temporal:127.0.0.1:7233/default"),
    (" TEMPORAL://h:1/ns?side=postgresql://u@h/db", " TEMPORAL://h:1/ns?side=***"),
    ("cell:cells.toml", "cell:cells.toml"),
    ("cells:cells.toml", "cells:cells.toml"),
    (f"cell:u:{SECRET}@h", "cell:***@h"),
    (f"postgresql://h/db?api_key={SECRET}", "postgresql://h/db?api_key=***"),
])  # fmt: skip
def test_a_url_is_shown_with_all_that_is_no_secret(url, shown):
    assert redacted(url) == shown
    assert redacted(shown) == shown


def test_no_url_of_a_cluster_tells_what_stands_in_the_place_of_a_password():
    """Whatever else is in it, and whether or not it was escaped."""
    dice, letters = random.Random(7), "ab:/?#[]%@,&=. 1;$'|"
    for _ in range(5_000):
        before, behind = ("".join(dice.choices(letters, k=dice.choice([0, 3, 9]))) for _ in range(2))
        head = dice.choice(["temporal://h:1/ns?", "temporal://h:1/ns?queue=q&", "temporal:h/ns?tls=on&"])
        url = f"{head}side=postgresql://u:{before}{SECRET}{behind}@h:5432/db{dice.choice(['', '&queue=q', '?a=b'])}"
        assert SECRET not in redacted(url), url
