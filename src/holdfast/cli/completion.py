"""`holdfast completion`: the script that lets a shell complete commands, options and ids of runs."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from holdfast.cli.options import subcommand


@subcommand()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    bash: add eval "$(holdfast completion bash)" to ~/.bashrc; zsh: the same with zsh in ~/.zshrc; fish: write the
    output to ~/.config/fish/completions/holdfast.fish.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    whole = click.get_current_context().find_root().command
    click.echo(kind(whole, {}, "holdfast", "_HOLDFAST_COMPLETE").source())
