"""A run and those it starts, followed as they go: on a terminal a picture that moves, in a pipe one line per event."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live

from holdfast.cli.view.choices import to_decide
from holdfast.cli.view.console import glyphs
from holdfast.cli.view.draw import MARGIN, STATUS_STYLES, Scene, clean, fit, lines, progress_line, rows, wrapped
from holdfast.cli.view.lines import line, told_now
from holdfast.cli.view.screen import Text, take_prints
from holdfast.cli.view.tree import History
from holdfast.client.client import Client
from holdfast.client.family import Family
from holdfast.client.info import is_put_off
from holdfast.words.durations import spoken, when
from holdfast.words.events import is_quiet
from holdfast.words.model import FINISHED, Event

_SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_ROOM_AROUND: Final = 8  # lines of the screen that are not the tree
_HELD_S: Final = 0.5  # for how long the failure of a step is not told, in case it is that of the run


class Watch(Family):
    """A family with its histories, drawn as they grow."""

    def __init__(self, hf: Client, run: str) -> None:
        super().__init__(hf, run)
        self.histories: dict[str, History] = {}

    @property
    def history(self) -> History:
        """The history of the run itself."""
        return self.histories[self.run]

    async def look(self) -> list[Event]:
        """Read what was recorded since the last look, in order."""
        new = await super().look()
        for run in self.rows:
            self.histories.setdefault(run, History())
        for event in sorted(new, key=lambda event: event.seq):
            self.histories[event.run].add(event)
        for history in self.histories.values():
            history.show_children(self.rows)
        return new

    def waits(self) -> str | None:
        """Say what the run waits for."""
        root = self.root
        if root.due_at is not None and is_put_off(root, self.edge.now()):
            return f"begins at {when(root.due_at)}"
        if root.status != "waiting":
            return None
        if root.waits_for == "child":
            deeper = [row for row in self.rows.values() if row.id != root.id and row.status == "waiting"]
            told = {f"{row.id} waits for a {row.waits_for}" for row in deeper if row.waits_for != "child"}
            return "waits for its child run" + (f": {'; '.join(sorted(told)[:3])}" if told else "")
        until = f" until {when(root.due_at)}" if root.due_at is not None and not self.is_due else ""
        word = {"timer": "sleeps", "retry": "waits to try a step again", "person": "waits for a person"}
        return word.get(root.waits_for or "", f"waits for a {root.waits_for}") + until


class Display(Protocol):
    """A way to show progress."""

    def begin(self) -> None: ...
    def update(self, watch: Watch, new: Iterable[Event]) -> None: ...
    def give_way(self) -> None: ...
    def end(self, watch: Watch | None) -> None: ...


class Lines:
    """One line per event, at once."""

    def __init__(self, on: Console, seen: dict[str, int], url: str | None) -> None:
        self._on, self._seen, self._url = on, seen, url
        self._asked: set[str] = set()
        self._questions: set[str] = set()  # their texts, as events told them
        self._waits: tuple[str | None, int | None] | None = None
        self._held: list[Event] = []  # from the failure of a step on: it may be that of the run, which is told once
        self._held_at = 0.0

    def begin(self) -> None:
        pass

    def give_way(self) -> None:
        pass

    def update(self, watch: Watch, new: Iterable[Event]) -> None:
        for event in new:
            if not is_quiet(event) and event.seq >= self._seen.get(event.run, 0):
                if not self._held and event.kind == "step.failed":
                    self._held_at = time.monotonic()
                if self._held or event.kind == "step.failed":
                    self._held.append(event)
                else:
                    self._print(self._line(event, watch))
        if watch.is_over or time.monotonic() > self._held_at + _HELD_S:
            self._let_go(watch)
        told, why = watch.waits(), (watch.root.waits_for, watch.root.due_at)
        if told is not None and why != self._waits and not watch.is_due:
            self._print(told_now(watch.run, told))
        self._waits = None if told is None else why
        for question in watch.questions:
            if question.id not in self._asked:
                self._let_go(watch)
                self._asked.add(question.id)
                if question.question not in self._questions:
                    self._print(Text(f"{MARGIN}{clean(question.question)}", "yellow"))
                for line in to_decide(question, self._url, MARGIN):
                    self._print(line)

    def end(self, watch: Watch | None) -> None:
        self._let_go(watch)

    def _let_go(self, watch: Watch | None) -> None:
        held, self._held = self._held, []
        for event in held:
            self._print(self._line(event, watch))

    def _line(self, event: Event, watch: Watch | None) -> Text:
        if event.kind == "approval.asked" and event.data.get("kind") in ("approve", "ask"):
            self._questions.add(str(event.data.get("question")))
        failure = watch.failure if watch is not None else None
        return line(event, error=failure is None or not failure.tells(event))

    def _print(self, text: Text) -> None:
        self._on.print(text, soft_wrap=True)
        self._on.file.flush()


class Moving:
    """The picture of the run, drawn again as it changes."""

    def __init__(self, on: Console, input: str, url: str | None, *, take_stdout: bool) -> None:
        self._on, self._input, self._url, self._take_stdout = on, input, url, take_stdout
        self._live = self._new()
        self._frame = 0

    def _new(self) -> Live:
        return Live(console=self._on, auto_refresh=False, redirect_stdout=self._take_stdout, redirect_stderr=True)

    def begin(self) -> None:
        self._live = self._new()
        self._live.start()
        take_prints(self._on)

    def give_way(self) -> None:
        """Take the picture away: what follows stands in its place, and says all of it that matters then."""
        self._live.transient = True
        self._live.stop()

    def update(self, watch: Watch, new: Iterable[Event]) -> None:
        self._frame += 1
        self._live.update(self._picture(watch, going=True), refresh=True)

    def end(self, watch: Watch | None) -> None:
        if watch is not None and watch.rows:
            self._live.update(self._picture(watch, going=False), refresh=True)
        self._live.stop()

    def _picture(self, watch: Watch, *, going: bool) -> RenderableType:
        on, signs, root = self._on, glyphs(self._on), watch.root
        now = watch.edge.now()
        running = watch.edge.open_calls() if root.status not in FINISHED else {}
        for run, history in watch.histories.items():
            history.show_open(running.get(run, ()))
        room = max(on.height - _ROOM_AROUND, 5)
        untold = frozenset() if watch.failure is None else watch.failure.steps
        statuses = {row.id: row.status for row in watch.rows.values()}
        scene = Scene(signs, on.width, watch.histories, statuses, now, room, untold=untold)
        tree = lines(rows(scene, root.id, watch.history), on.width, signs)
        if len(tree) > room:
            tree = [Text(f"{MARGIN}{signs.more}", "dim"), *tree[len(tree) - room + 1 :]]
        for said in (watch.history.plan, watch.history.progress):
            if said is not None and said.total and root.status not in FINISHED:
                tree.insert(0, progress_line(said, signs))
                fit(tree[0], on.width - len(MARGIN), signs)
        return Group(self._header(watch, now, going=going), *tree, *self._below(watch))

    def _header(self, watch: Watch, now: int, *, going: bool) -> Text:
        root = watch.root
        turning = _SPINNER[self._frame % len(_SPINNER)] if glyphs(self._on).done == "✓" else "*"
        sign = {"completed": glyphs(self._on).done, "failed": glyphs(self._on).failed}.get(root.status)
        style = STATUS_STYLES.get(root.status, "")
        made = Text(no_wrap=True, overflow="ellipsis").append(f"{sign or (turning if going else ' ')} ", style)
        made.append(root.id, "bold")
        took = spoken(((root.finished_at or now) - (root.started_at or root.created_at)) / 1000)
        call = Text(f"  {root.agent}({clean(self._input)})", "dim")
        end = Text(f"  {root.status}", style).append(f"  {took}", "dim")
        fit(call, max(self._on.width - made.cell_len - end.cell_len, len(root.agent) + 6), glyphs(self._on))
        return made.append_text(call).append_text(end)

    def _below(self, watch: Watch) -> list[Text]:
        made = []
        if (told := watch.waits()) is not None:
            made.append(Text(f"{MARGIN}{told}", "yellow"))
        for question in watch.questions[:3]:
            if question.kind not in ("approve", "ask"):  # those stand in the tree, word for word
                made += wrapped(clean(question.question), self._on.width, "yellow")
            made += to_decide(question, self._url, MARGIN)
        return made
