"""The table of commands says what the commands say, and help imports none of them."""

import subprocess
import sys

from tests.commands import environment

from holdfast.cli import main
from holdfast.cli.group import COMMANDS


def test_the_table_says_what_the_commands_say():
    """Where each is, and its help in a line."""
    for section in COMMANDS.values():
        for name, (module, says) in section.items():
            command = main.commands[name]
            assert command.get_short_help_str(200) == says
            assert command.callback.__module__ == f"holdfast.cli.{module}"


def test_help_imports_no_command():
    """Only the group: what else there is would make everybody wait who asks what there is."""
    script = (
        "import atexit, sys; from holdfast.cli import main; sys.argv = ['holdfast', '--help']; "
        "atexit.register(lambda: print(*[name for name in sys.modules if name.startswith('holdfast')], file=sys.stderr)); main()"
    )
    made = subprocess.run([sys.executable, "-c", script], env=environment(), capture_output=True, check=True, text=True)
    assert sorted(made.stderr.split()) == ["holdfast", "holdfast.cli", "holdfast.cli.group"]
