"""The screen: text for people on a terminal, in a pipe or in a picture. Every command prints through it, so none can forget.

- A `Text` is one line. Of what it is given nothing can steer the terminal or deceive the eye, nor begin another line: see
  `holdfast.words.harmless`. No text is ever read as markup, a link or an emoji.
- What finds no room in a line goes on below it, further to the right: what stands at the left edge is ours. Commands are not
  broken, so that they can be pasted (`no_wrap`); nobody else's words are in them.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable
from typing import Any, Final

import rich.text
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.file_proxy import FileProxy
from rich.segment import Segment
from rich.text import Span

from holdfast.words.harmless import harmless, pieces

_HANGING: Final = "    "  # deeper than where a line begins
_GUIDES: Final = " │"


class Text(rich.text.Text):
    """A line of text with styles."""

    def __init__(self, text: str = "", style: Any = "", **how: Any) -> None:
        super().__init__(harmless(text), style, **how)

    def append(self, text: rich.text.Text | str, style: Any = None) -> Text:
        super().append(harmless(text) if isinstance(text, str) else text, style)
        return self

    def append_text(self, text: rich.text.Text) -> Text:
        super().append_text(text)
        return self


class Screen(Console):
    """Prints what it is given: no markup, no emoji, no highlighting of users' values."""

    def __init__(self, **how: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **how)

    def print(self, *objects: Any, **how: Any) -> None:
        """Print as rich does, but keep unbreakable texts unbroken, which is lost where several texts are made one."""
        super().print(
            *[Group(each) if isinstance(each, rich.text.Text) and each.no_wrap else each for each in objects], **how
        )

    def render_str(self, text: str, *, style: Any = "", justify: Any = None, overflow: Any = None, **_: Any) -> Text:
        return Text(text, style, justify=justify, overflow=overflow)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        if not isinstance(renderable, rich.text.Text):
            return super().render(renderable, options)
        options = options or self.options
        line = _checked(renderable)
        if not self._is_broken(line, options):
            return super().render(line, options)
        begins = line.plain[: len(line.plain) - len(line.plain.lstrip(_GUIDES))]
        margin = (begins + _HANGING)[: options.max_width // 3]
        lines = line.wrap(self, max(options.max_width - len(margin), 1), overflow="fold")
        whole = rich.text.Text(f"\n{margin}").join(lines)
        whole.end = line.end
        return super().render(whole, options.update(no_wrap=True, overflow="ignore"))

    def _is_broken(self, line: rich.text.Text, options: ConsoleOptions) -> bool:
        if line.no_wrap or line.cell_len <= options.max_width:
            return False
        return not options.no_wrap or (options.overflow == "ignore" and self.is_terminal)


def _checked(line: rich.text.Text) -> rich.text.Text:
    """Make a line harmless, also one made by others, such as what a user's code prints in colours."""
    shown = harmless(line.plain)
    if shown == line.plain:
        return line
    ends = [0, *itertools.accumulate(map(len, pieces(line.plain)))]
    made = line.blank_copy(shown)
    made.spans = [Span(ends[span.start], ends[min(span.end, len(line.plain))], span.style) for span in line.spans]
    return made


class ByLine(FileProxy):
    """A file for what a user's code prints while a picture is drawn: each line by itself, above the picture."""

    def write(self, text: str) -> int:
        for part in text.splitlines(keepends=True):
            super().write(part)
        return len(text)


def take_prints(on: Console) -> None:
    """Print line by line what a picture has taken over."""
    for name in ("stdout", "stderr"):
        taken = getattr(sys, name)
        if isinstance(taken, FileProxy):
            setattr(sys, name, ByLine(on, taken.rich_proxied_file))
