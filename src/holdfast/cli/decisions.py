"""Commands for people who decide: approvals, approve, deny, answer, delegate."""

from __future__ import annotations

import click

from holdfast.cli.group import F, db_option, holdfast, json_option, run_ids, wait_for


@holdfast.command()
@click.option("--run", metavar="ID", help="Only questions of this run and those below it.", shell_complete=run_ids)
@click.option("--for", "to", metavar="NAME", help="Only what this person or group:NAME may decide.")
@click.option("--by", metavar="NAME", help="Who decides. Default: the person of --for, else the user of this computer.")
@click.option("--all", "every", is_flag=True, help="Also what was decided, expired or withdrawn.")
@click.option("--list", "listed", is_flag=True, help="Only list them, on a terminal too.")
@db_option
@json_option
def approvals(
    run: str | None, to: str | None, by: str | None, every: bool, listed: bool, db: str | None, as_json: bool
) -> None:
    """What waits for a person.

    On a terminal they come one after the other: look at what is shown, approve, deny, edit it in $EDITOR, or skip.
    """
    from holdfast.cli.approvals import approvals as go_through

    wait_for(go_through(db, run, to, by, every=every, as_json=as_json, ask=not listed))


def _decider_options(command: F) -> F:
    for option in (
        click.option(
            "--digest", metavar="HEX", help="Of what you were shown: nothing is asked, and nothing else is decided."
        ),
        click.option("--note", default="", metavar="TEXT", help="A note; for a deny the reason that the agent sees."),
        click.option("--by", metavar="NAME", help="Who decides; the user of this computer by default."),
        click.argument("question", metavar="ID", shell_complete=run_ids),
    ):
        command = option(command)
    return json_option(db_option(command))


@holdfast.command()
@_decider_options
@click.option("--data", metavar="JSON|@FILE", help="In the place of all that is shown, where that may be edited.")
def approve(
    question: str, by: str | None, note: str, digest: str | None, data: str | None, db: str | None, as_json: bool
) -> None:
    """Approve what a run asks for.

    ID is the question's, or a run's with one open question below it. It is shown, and exactly what was shown is approved; on a
    terminal you are asked first.
    """
    from holdfast.cli.approvals import Wanted
    from holdfast.cli.approvals import approve as do

    wait_for(do(Wanted(db, question, digest, by, note, as_json), data))


@holdfast.command()
@_decider_options
def deny(question: str, by: str | None, note: str, digest: str | None, db: str | None, as_json: bool) -> None:
    """Deny what a run asks for; the agent sees the note."""
    from holdfast.cli.approvals import Wanted
    from holdfast.cli.approvals import deny as do

    wait_for(do(Wanted(db, question, digest, by, note, as_json)))


@holdfast.command()
@_decider_options
@click.argument("value")
def answer(
    question: str, value: str, by: str | None, note: str, digest: str | None, db: str | None, as_json: bool
) -> None:
    """Answer a question with a value.

    ID is the question's, or a run's with one open question. VALUE is JSON, or text, or @FILE. About a step in doubt it is
    run (it did not happen, run it), fail, or '{"result": ...}' (it happened, with this result).
    """
    from holdfast.cli.approvals import Wanted
    from holdfast.cli.approvals import answer as do

    wait_for(do(Wanted(db, question, digest, by, note, as_json), value))


@holdfast.command()
@_decider_options
@click.option("--to", required=True, metavar="NAME", help="The person or group whose it is from now on.")
def delegate(
    question: str, to: str, by: str | None, note: str, digest: str | None, db: str | None, as_json: bool
) -> None:
    """Pass a question on to somebody else."""
    from holdfast.cli.approvals import Wanted
    from holdfast.cli.approvals import delegate as do

    wait_for(do(Wanted(db, question, digest, by, note, as_json), to))
