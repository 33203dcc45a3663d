"""The recipes of docs/recipes.md as they stand there, for workers in processes of their own; only the bodies are ours."""

import re
import sys
import types

from tests.docs.pages import block
from tests.processes.office_ledger import allowed, effect

EMPTY = re.compile(r"async def (\w+)(\(.*\) -> .*): \.\.\.")


def recipe(name, bodies, changes=()):
    """A block whose empty steps have these bodies; a day may be shorter."""
    code = EMPTY.sub(r"async def \1\2: return await bodies.\1(**locals())", block("docs/recipes.md", f"recipe: {name}"))
    for before, after in changes:
        assert before in code
        code = code.replace(before, after)
    made = types.ModuleType(f"tests.processes.recipe_{name}")
    sys.modules[made.__name__] = made  # annotations are resolved by module name
    made.bodies = bodies
    exec(compile(code, f"docs/recipes.md:{name}", "exec", dont_inherit=True), made.__dict__)
    return made


class Bookings:
    @staticmethod
    async def book(place, reference):
        effect(f"book {place} {reference}")
        await allowed(f"book {place}")
        if place == "Atlantis":
            raise ValueError("nowhere")
        return f"ticket {place}"

    @staticmethod
    async def cancel_booking(reference):
        effect(f"cancel {reference}")
        await allowed("cancel")


class Writing:
    @staticmethod
    async def chapter(number, wishes):
        effect(f"chapter {number}")
        await allowed(f"chapter {number}")
        return f"chapter {number} with {','.join(wishes) or 'nothing'}"

    @staticmethod
    async def consider(wish):
        effect(f"consider {wish}")
        await allowed("consider")
        return f"many {wish}"

    @staticmethod
    async def acknowledge(wish):
        effect(f"acknowledge {wish}")
        await allowed("acknowledge")


trip = recipe("undo", Bookings).trip
write_book = recipe("listener", Writing, [("1 day", "0.2s")]).write_book
