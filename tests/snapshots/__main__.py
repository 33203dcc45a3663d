"""Accept what is new: `python -m tests.snapshots` writes the files anew; `git diff` then shows what has changed.

What must be kept stays in its file, though the package has lost it, until it is named in removed.txt.
"""

from tests.snapshots.comparison import accept
from tests.snapshots.surface import SNAPSHOTS

if __name__ == "__main__":
    for name in SNAPSHOTS:
        accept(name)
