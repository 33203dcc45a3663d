"""Whole inputs, told by what is new in them: they come back as they were, cost what is new, and nothing hostile is read."""

import json
import random
import sys

import pytest

from holdfast.errors import NotStorable
from holdfast.values import parts as parts_module
from holdfast.values.parts import ARGUMENTS, LEAST, Memory, bases, digest_of, expanded, filled, needed, parsed


def text_of(value):
    return json.dumps(value, separators=(",", ":"))


class Journal:
    """Events with inputs and values, as a run would record them, and a store of parts."""

    def __init__(self, arguments="{}"):
        self.inputs, self.values, self.parts = {}, {ARGUMENTS: arguments}, {}
        self.memory = Memory()
        self.memory.saw(ARGUMENTS, None, arguments)

    def call(self, value, result=None):
        """One call that is given this, and what it came to; returns its place."""
        told = self.memory.tell(text_of(value))
        seq, tree = len(self.inputs), json.loads(json.dumps(told.tree))
        self.parts |= told.parts
        self.inputs[seq], self.values[seq] = tree, text_of(result)
        self.memory.saw(seq, tree, self.values[seq])
        return seq

    def recalled(self):
        """The memory that a resumed run makes of the same events."""
        memory = Memory()
        memory.saw(ARGUMENTS, None, self.values[ARGUMENTS])
        for seq, tree in self.inputs.items():
            memory.saw(seq, tree, self.values[seq])
        return memory

    def read(self, seq):
        tree = expanded(seq, self.inputs[seq], self.inputs)
        known = {}
        while lacking := needed(tree, known).parts:
            known |= {digest: parsed(digest, self.parts[digest]) for digest in lacking}
        values = {seq: json.loads(self.values[seq]) for seq in needed(tree, known).values}
        return json.loads(filled(tree, known, values))

    def size(self):
        return sum(len(text_of(tree)) for tree in self.inputs.values()) + sum(map(len, self.parts.values()))


def words(dice, length):
    return "".join(dice.choices("abcdefgh ", k=length))


def test_a_conversation_that_grows_costs_what_is_new():
    """Of 200 calls, each given all that was said, the answers are in the journal already, and what a user said is a part."""
    dice, journal, said = random.Random(1), Journal(), []
    for _ in range(200):
        said = [*said, {"role": "user", "content": words(dice, 1000)}]
        answer = words(dice, 2000)
        journal.call({"messages": said}, answer)
        said = [*said, {"role": "assistant", "content": answer}]
    assert journal.read(199) == {"messages": said[:-1]}
    assert len(journal.parts) == 200
    assert journal.size() < 200 * 1000 * 1.4


@pytest.mark.parametrize("change", ["another beginning", "the middle is cut out", "a window", "a mark at the end"])
def test_a_list_that_changes_elsewhere_than_at_its_end_costs_what_is_new(change):
    dice, journal, said = random.Random(2), Journal(), []
    for turn in range(100):
        said = [*said, {"role": "user", "content": words(dice, 300)}]
        given = {
            "another beginning": [{"role": "system", "content": f"It is {turn} o'clock. {'Be kind. ' * 40}"}, *said],
            "the middle is cut out": [*said[:2], *said[-30:]] if turn % 40 > 30 else said,
            "a window": said[-20:],
            "a mark at the end": [*said[:-1], {**said[-1], "cache": True}],
        }[change]
        seq = journal.call({"messages": given}, turn)
        assert journal.read(seq) == {"messages": given}
    assert journal.size() < 100 * 1100


def random_value(dice, depth=0):
    kind = dice.choice(["text", "long", "number", "list", "dict", "odd"] if depth < 4 else ["text", "number"])
    if kind == "text":
        return words(dice, dice.randint(0, 30))
    if kind == "long":
        return words(dice, dice.choice([LEAST - 3, LEAST - 1, LEAST, 600]))
    if kind == "number":
        return dice.choice([0, -5, 1.5, None, True, 2**60])
    if kind == "odd":
        return {"$tuple": [random_value(dice, depth + 1)]}
    count = dice.choice([0, 1, 3, 4, 5, 12])
    if kind == "list":
        return [random_value(dice, depth + 1) for _ in range(count)]
    return {f"k{n}": random_value(dice, depth + 1) for n in range(count)}


def mutated(dice, value, pool):
    """The value with something added, taken away or put in from elsewhere, as a conversation is from call to call."""
    if isinstance(value, dict) and value:
        name = dice.choice(list(value))
        return {**value, name: mutated(dice, value[name], pool)}
    if isinstance(value, list):
        place, made = dice.randint(0, len(value)), list(value)
        match dice.choice(["add", "add", "drop", "change", "twice"]):
            case "add":
                made[place:place] = [dice.choice(pool)]
            case "drop":
                del made[place : place + 2]
            case "change" if made:
                made[place - 1] = mutated(dice, made[place - 1], pool)
            case "twice":
                made += made[:5]
        return made
    return dice.choice(pool)


@pytest.mark.parametrize("seed", range(60))
def test_any_input_comes_back_as_it_was_and_is_told_alike_after_a_resume(seed):
    dice = random.Random(seed)
    journal = Journal(text_of({"document": words(dice, 900)}))
    pool, value = [random_value(dice) for _ in range(6)], {"a": [], "b": random_value(dice)}
    for _ in range(25):
        value = mutated(dice, value, [*pool, *[json.loads(text) for text in journal.values.values()]])
        if len(text_of(value)) > 30_000:
            value = {"a": []}
        seq = journal.call(value, dice.choice(pool))
        assert journal.read(seq) == value
    told, again = journal.memory.tell(text_of(value)), journal.recalled().tell(text_of(value))
    assert text_of(told.tree) == text_of(again.tree)
    assert told.parts == again.parts


def test_arguments_of_the_run_and_parts_of_results_are_named_where_they_are():
    document = "x" * 1000
    journal = Journal(text_of({"document": document, "depth": 2}))
    answer = {"text": "y" * 500, "usage": {"tokens": 3}}
    journal.call({"about": document}, answer)
    journal.call({"about": document, "said": answer, "word": "y" * 500})
    assert journal.inputs[1] == {
        "about": {"$value": [-1, "document"]},
        "said": {"$value": [0]},
        "word": {"$value": [0, "text"]},
    }
    assert journal.parts == {}


def test_small_inputs_stand_as_they_are():
    journal = Journal()
    journal.call({"n": 3, "names": ["a", "b"]})
    assert journal.inputs[0] == {"n": 3, "names": ["a", "b"]}


def test_equal_parts_have_one_digest_in_every_run():
    schema = {"name": "search", "parameters": {f"field{n}": {"type": "string"} for n in range(30)}}
    one, other = Journal(), Journal('{"x": 1}')
    one.call({"tools": [schema] * 2, "n": 1})
    other.call({"n": 2, "deeper": {"tool": schema}})
    assert one.parts == other.parts
    assert len(one.parts) == 1


def test_a_long_list_of_small_things_is_one_part():
    journal = Journal()
    numbers = list(range(30_000))
    journal.call({"numbers": numbers})
    assert len(text_of(journal.inputs[0])) < 100
    journal.call({"some": numbers[:5000]})
    journal.call({"some": [*numbers[:5000], 7]})
    assert [journal.read(n)["some"] for n in (1, 2)] == [numbers[:5000], [*numbers[:5000], 7]]
    assert len(text_of(journal.inputs[2])) < 200


# --- what is damaged or hostile ---

DAMAGED = {
    "a list that is none": {"a": {"$list": 3}},
    "a piece that is none": {"a": {"$list": ["x"]}},
    "no event": {"a": {"$list": [["x", 0, 1]]}},
    "bounds the wrong way round": {"a": {"$list": [[0, 3, 1]]}},
    "no path": {"a": {"$list": [[0, 0, 1, "a"]]}},
    "a path of objects": {"a": {"$list": [[0, 0, 1, [{}]]]}},
    "more than there is": {"a": {"$list": [[0, 0, 99]]}},
    "another place": {"b": {"$list": [[0, 0, 1]]}},
    "itself": {"a": {"$list": [[5, 0, 1]]}},
    "what comes later": {"a": {"$list": [[9, 0, 1]]}},
    "what is not there": {"a": {"$list": [[3, 0, 1]]}},
    "a slice inside what is new": {"a": {"$list": [{"+": [{"$list": [[0, 0, 1]]}]}]}},
    "a value without a place": {"a": {"$value": []}},
    "a value of no event": {"a": {"$value": ["x"]}},
    "a value before all": {"a": {"$value": [-2]}},
    "a value that is not there": {"a": {"$value": [4]}},
    "a path that leads nowhere": {"a": {"$value": [0, "nowhere"]}},
    "a part without a digest": {"a": {"$part": 3}},
    "a part with another name": {"a": {"$part": "../../etc/passwd"}},
    "a part that is not there": {"a": {"$part": "A" * 22}},
    "elements that are none": {"a": {"$list": [{"+": {"$part": digest_of('"text"')}}]}},
    "too deep": json.loads('{"a":' * 450 + "1" + "}" * 450),
}


def read(tree, inputs=None, parts=None):
    tree = expanded(5, tree, inputs or {0: {"a": [1, 2, 3]}})
    lacking = needed(tree, {})
    known = {digest: parsed(digest, text) for digest, text in (parts or {}).items() if digest in lacking.parts}
    return filled(tree, known, {0: "a text"})


@pytest.mark.parametrize("what", DAMAGED)
def test_what_is_damaged_is_refused_with_the_reason(what):
    with pytest.raises(NotStorable, match="inputs"):
        read(DAMAGED[what], parts={digest_of('"text"'): '"text"'})


def test_a_part_must_be_what_its_digest_says():
    with pytest.raises(NotStorable, match="not what its digest says"):
        parsed(digest_of('"one"'), '"two"')


def test_parts_that_double_each_other_do_not_fill_memory(monkeypatch):
    """Thirty parts that each name the one before twice are a gigabyte; that is found before it is made."""
    monkeypatch.setattr(parts_module, "_MOST_CHARACTERS", 1_000_000)
    texts, text = {}, text_of("x" * 300)
    for _ in range(30):
        name = digest_of(text)
        texts[name] = text
        text = text_of([{"$part": name}] * 2)
    known = {digest: parsed(digest, each) for digest, each in texts.items()}
    with pytest.raises(NotStorable, match="larger than any value"):
        filled({"a": {"$part": name}}, known, {})


def test_slices_that_double_each_other_do_not_fill_memory():
    inputs = {0: {"a": list(range(1000))}}
    inputs |= {n: {"a": {"$list": [[n - 1, 0, 1000 * 2 ** (n - 1)]] * 2}} for n in range(1, 40)}
    with pytest.raises(NotStorable, match="more elements than any"):
        expanded(39, inputs[39], inputs)


def test_a_long_chain_is_read_without_recursion():
    journal, said, turns = Journal(), [], sys.getrecursionlimit() + 100
    for turn in range(turns):
        said = [*said, f"turn {turn} {'.' * 60}"]
        journal.call({"said": said})
    assert journal.read(turns - 1) == {"said": said}
    assert bases(journal.inputs[turns - 1]) == {turns - 2}
