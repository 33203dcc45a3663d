"""The support example's parts for its tests: its modules, fresh, and its shop and model open in this process."""

import importlib
import sys
from contextlib import contextmanager
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "support"
_PARTS = ("agents", "chat", "shop")


@contextmanager
def open_shop(folder, monkeypatch, model=None):
    """The shop with empty books, its chat, and the scripted model, or the one at this URL."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    try:
        world = importlib.import_module("shop")
        with world.Shop(folder / "shop.db").open() as shop, world.scripted_model(shop) as scripted:
            monkeypatch.setenv("SHOP_URL", shop.url)
            monkeypatch.setenv("MODEL_URL", model or scripted.url)
            yield shop, importlib.import_module("chat")  # which knows them from the environment
    finally:
        for name in _PARTS:  # other examples have parts of these names
            sys.modules.pop(name, None)
