"""The command line. Only click is imported here: `holdfast --help` must not wait for the rest."""

from __future__ import annotations


def main() -> None:
    """The entry point of `holdfast` and of `python -m holdfast`."""
    from holdfast.cli.commands import holdfast

    holdfast(prog_name=None)
