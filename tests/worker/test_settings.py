"""What a worker may be told."""

import pytest

from holdfast import BadArguments, Settings


@pytest.mark.parametrize("name", ["", "a", "web-1.eu_2", "x" * 40])
def test_names_of_workers(name):
    """A name goes into ids and names of files: letters, digits and three signs, or none at all."""
    assert Settings(name=name).name == name


@pytest.mark.parametrize("name", ["-a", "a b", "a/b", "x" * 41, "ä", "a\n"])
def test_other_names_are_refused(name):
    """What could not stand in the name of a file is refused when it is given."""
    with pytest.raises(BadArguments, match="name="):
        Settings(name=name)


def test_one_queue_is_a_list_too():
    """A string would be taken for the list of its letters."""
    with pytest.raises(BadArguments, match="queues='mail'"):
        Settings(queues="mail")
