"""What the whole session shares."""

import os
import sys

# Tests start hundreds of processes, and each would compile the package anew if none may keep what it compiled.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
