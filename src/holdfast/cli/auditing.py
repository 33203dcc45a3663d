"""`holdfast audit`, and `show --audit`: who did what to which run."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from holdfast.cli.output import answer, console, print_json
from holdfast.cli.picture import clean, day_and_time
from holdfast.cli.reading import existing, row_of
from holdfast.run import Deed


async def audit(url: str | None, run: str | None, limit: int, *, as_json: bool) -> None:
    """The command."""
    async with existing(url) as hf:
        deeds = list(reversed(await hf.audit(run=run, limit=limit)))  # the newest last, as a history reads
        if run is not None and not deeds:
            await row_of(hf, run)  # what was done to a run outlives it: unknown is only one that has left nothing
    if as_json:
        print_json({"audit": [{"id": deed.id, "at": deed.at, "run": deed.run, "by": deed.by, "action": deed.action,
                               "data": deed.data} for deed in deeds]})  # fmt: skip
        return
    if not deeds:
        answer("Nobody has done anything to " + (f"{run} from outside." if run else "any run from outside."))
        return
    console().print(_table(deeds, of_one=all(deed.run == run for deed in deeds)))


def _table(deeds: list[Deed], *, of_one: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("when", "who", "what", *(() if of_one else ("run",)), "why"):
        table.add_column(name)
    for deed in deeds:
        why = deed.data.get("reason") or deed.data.get("note") or ""
        cells = [day_and_time(round(deed.at.timestamp() * 1000)), clean(deed.by), deed.action,
                 *([] if of_one else [deed.run]), clean(str(why))]  # fmt: skip
        table.add_row(*[Text(cell) for cell in cells])
    return table
