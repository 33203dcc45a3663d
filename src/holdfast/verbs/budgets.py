"""`spend` and `remaining`: what a step has cost, and what is left of the budgets that hold for its run."""

from __future__ import annotations

import functools
from typing import Any, Final

from holdfast.errors import BadArguments, NotInRun
from holdfast.runtime import StepContext, here
from holdfast.values.text import is_whole, short
from holdfast.words.budget import Remaining
from holdfast.words.budget import remaining as what_remains
from holdfast.words.durations import epoch_ms
from holdfast.words.spent import Spent

_MOST_USD: Final = 1_000_000  # of one call: more is a mistake
_MOST_TOKENS: Final = 10**12


def spend(
    usd: float | None = None,
    *,
    input_tokens: int = 0,
    output_tokens: int = 0,
    model: str | None = None,
    provider: str | None = None,
) -> None:
    """Say, in a step, what its body has spent. It is recorded with the step, also if the step fails.

    One `spend` with a model or with tokens is one call of a model. Outside a run this does nothing.

    Args:
        usd: Dollars. Without them the price is looked up by `model` and `provider` in `genai-prices`, if that is
            installed (`holdfast[prices]`); a price that is not known stays unpriced.
        input_tokens: Tokens that the model was given.
        output_tokens: Tokens that the model returned.
        model: The model that was asked.
        provider: Its provider.

    Raises:
        BadArguments: A number cannot be used.
        NotInRun: It was called in agent code, which runs again and would spend it again.

    Example:
        ```python
        holdfast.spend(input_tokens=900, output_tokens=100, model="gpt-5-mini")
        ```
    """
    money = usd is None or (isinstance(usd, int | float) and not isinstance(usd, bool) and 0 <= usd <= _MOST_USD)
    if not money:
        raise BadArguments(f"spend(usd={short(usd)}): use an amount of dollars, from 0 to {_MOST_USD:,}")
    for name, value in (("input_tokens", input_tokens), ("output_tokens", output_tokens)):
        if not is_whole(value, 0, _MOST_TOKENS):
            raise BadArguments(f"spend({name}={short(value)}): use a whole number, from 0 to {_MOST_TOKENS:,}")
    place = here()
    if place is None or (isinstance(place, StepContext) and place.run is None):
        return
    if not isinstance(place, StepContext):
        raise NotInRun(
            "spend was called in the agent, whose code runs again at every resumption and would spend it again. Call it in "
            "the step that had the cost"
        )
    called = model is not None or input_tokens > 0 or output_tokens > 0
    if usd is None and model is not None:
        usd = _price(model, provider, input_tokens, output_tokens)
    unpriced = called and usd is None
    spent = Spent(float(usd or 0), input_tokens, output_tokens, int(called), int(unpriced))
    place.spendings.append((spent, model))  # one operation: a body may have threads of its own


def remaining() -> Remaining:
    """Tell what is left of the budgets that hold here: a `Remaining`.

    In an agent: when its last step ended, the same on every replay. In a step: when it began, less what it has spent since.

    Raises:
        NotInRun: It was called outside a run.

    Example:
        ```python
        while not holdfast.remaining().soft:
            await search("otters")
            break
        ```
    """
    place = here()
    if place is None or (isinstance(place, StepContext) and place.run is None):
        raise NotInRun("remaining() works only inside a running agent or one of its steps")
    if not isinstance(place, StepContext):
        return what_remains(place.kept.means, Spent(), epoch_ms(place.now()))
    spent = sum((each for each, _ in list(place.spendings)), Spent())
    return what_remains(place.left, spent, place.clock())


def _price(model: str, provider: str | None, input_tokens: int, output_tokens: int) -> float | None:
    prices = _prices()
    if prices is None:
        return None
    usage = prices.Usage(input_tokens=input_tokens, output_tokens=output_tokens)
    try:
        return float(prices.calc_price(usage, model, provider_id=provider).total_price)
    except (LookupError, ValueError):
        return None


@functools.cache
def _prices() -> Any:
    try:
        import genai_prices  # noqa: PLC0415 - not everyone needs it, and it takes half a second
    except ImportError:
        return None
    return genai_prices
