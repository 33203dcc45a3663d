"""Commands that act upon runs and the store: retry, pause, resume, cancel, send, prune, delete, token, audit, backup, restore."""

from __future__ import annotations

import click

from holdfast.cli.group import (
    STATUSES,
    F,
    agent_option,
    db_option,
    holdfast,
    json_option,
    pairs,
    run_argument,
    run_ids,
    wait_for,
)


def wanted_options(command: F) -> F:
    """Which runs: by id, or by what they are."""
    for option in (
        click.option("--label", "labels", metavar="KEY=VALUE", multiple=True, callback=pairs, help="Runs so labelled."),
        click.option("--status", "statuses", type=click.Choice(STATUSES), multiple=True, help="Runs in this state."),
        agent_option("Runs of this agent."),
        click.option("--by", metavar="NAME", help="Who does it; the user of this computer by default."),
        click.argument("runs", metavar="[ID]...", nargs=-1, shell_complete=run_ids),
    ):
        command = option(command)
    return command


@holdfast.command()
@wanted_options
@click.option("--reason", default="", metavar="TEXT", help="Why; it is shown and kept.")
@click.option("--only", is_flag=True, help="These runs only, not those below them.")
@click.option("--now", is_flag=True, help="Stop steps that run; they are in doubt then, as after a crash.")
@db_option
@json_option
def pause(
    runs: tuple[str, ...], by: str | None, agent: str | None, statuses: tuple[str, ...], labels: dict[str, str],
    reason: str, only: bool, now: bool, db: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Stop runs at their next safe point.

    Runs below them stop too. A step that runs may end. They go on when they are resumed.
    """
    from holdfast.cli.control import Wanted
    from holdfast.cli.control import pause as stop

    wait_for(stop(db, Wanted(runs, agent, statuses, labels), reason, by, only=only, now=now, as_json=as_json))


@holdfast.command()
@wanted_options
@click.option("--only", is_flag=True, help="These runs only, not those below them.")
@db_option
@json_option
def resume(
    runs: tuple[str, ...], by: str | None, agent: str | None, statuses: tuple[str, ...], labels: dict[str, str],
    only: bool, db: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Let paused runs go on.

    Runs below them that were paused by the same request go on too.
    """
    from holdfast.cli.control import Wanted
    from holdfast.cli.control import resume as go_on

    wait_for(go_on(db, Wanted(runs, agent, statuses, labels), by, only=only, as_json=as_json))


@holdfast.command()
@wanted_options
@click.option("--reason", default="", metavar="TEXT", help="Why; it is shown and kept.")
@click.option("--grace", default="30s", show_default=True, metavar="DURATION", help="How long it may tidy up.")
@db_option
@json_option
def cancel(
    runs: tuple[str, ...], by: str | None, agent: str | None, statuses: tuple[str, ...], labels: dict[str, str],
    reason: str, grace: str, db: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Stop runs for good.

    Children first, then the agent may tidy up. A second time ends them at once.
    """
    from holdfast.cli.control import Wanted
    from holdfast.cli.control import cancel as stop

    wait_for(stop(db, Wanted(runs, agent, statuses, labels), reason, grace, by, as_json=as_json))


@holdfast.command()
@wanted_options
@click.option(
    "--budget", metavar="usd=5,tokens=100000", help="What each may spend in all, instead of what it might before."
)
@db_option
@json_option
def retry(
    runs: tuple[str, ...], by: str | None, agent: str | None, statuses: tuple[str, ...], labels: dict[str, str],
    budget: str | None, db: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Let failed runs go on from their failure.

    What was recorded before stays; the failed step runs again. A paused run is resumed. `--status failed` means all failed
    runs; children go on with the runs that they brought down, and by themselves if --agent names theirs.
    """
    from holdfast.cli.control import Wanted
    from holdfast.cli.control import retry as again

    wait_for(again(db, Wanted(runs, agent, statuses, labels), budget, by, as_json=as_json))


@holdfast.command()
@run_argument
@click.argument("topic")
@click.argument("value", required=False)
@click.option("--key", metavar="KEY", help="The same key twice is one message.")
@db_option
@json_option
def send(run: str, topic: str, value: str | None, key: str | None, db: str | None, as_json: bool) -> None:
    """Send a message to a run. VALUE is JSON, or else text."""
    from holdfast.cli.control import send as send_it

    wait_for(send_it(db, run, topic, value, key, as_json=as_json))


@holdfast.command()
@click.option("--older-than", required=True, metavar="TIME", help="Finished longer ago than this: 30d, 12h.")
@click.option("--status", multiple=True, type=click.Choice(("completed", "failed", "cancelled")),
              help="Runs that ended so; repeatable. Default: completed and cancelled.")  # fmt: skip
@agent_option("Only runs of this agent.")
@click.option("--label", "labels", metavar="KEY=VALUE", multiple=True, callback=pairs, help="Only runs so labelled.")
@click.option("--dry-run", is_flag=True, help="Delete nothing; say what would be.")
@db_option
@json_option
def prune(
    older_than: str, status: tuple[str, ...], agent: str | None, labels: dict[str, str], dry_run: bool, db: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Delete old finished runs with their children."""
    from holdfast.cli.control import prune as delete_old

    fits = {"status": status or ("completed", "cancelled"), "agent": agent, "labels": labels or None}
    wait_for(delete_old(db, older_than, fits, dry_run=dry_run, as_json=as_json))


@holdfast.command()
@run_argument
@db_option
@json_option
def delete(run: str, db: str | None, as_json: bool) -> None:
    """Delete a finished run with its children."""
    from holdfast.cli.control import delete as delete_it

    wait_for(delete_it(db, run, as_json=as_json))


@holdfast.command()
@click.argument("name", metavar="[NAME]", required=False)
@click.option("--group", "groups", metavar="GROUP", multiple=True, help="A group that NAME is in; repeatable.")
@click.option("--scope", "scopes", type=click.Choice(("read", "write", "decide")), multiple=True,
              help="What it may do: look, start and control runs, decide questions; repeatable. Default: all.")  # fmt: skip
@click.option("--read-only", is_flag=True, help="The same as --scope read.")
@click.option("--expires", metavar="TIME", help="Refuse it after so long: 30d, 12h, or never. Default: 90d.")
@click.option("--list", "listed", is_flag=True, help="List all tokens.")
@click.option("--revoke", metavar="ID|NAME", help="Refuse a token, or all of a name, from now on.")
@db_option
@json_option
def token(
    name: str | None, groups: tuple[str, ...], scopes: tuple[str, ...], read_only: bool, expires: str | None, listed: bool,
    revoke: str | None, db: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Make a token for users of `holdfast serve`.

    NAME is who acts, in histories and in the audit. The token is printed once; the store has only a digest of it.
    """
    from holdfast.cli import tokens

    if sum((name is not None, listed, revoke is not None)) != 1:
        raise click.UsageError("give a NAME, or --list, or --revoke ID")
    if name is None and (groups or scopes or read_only or expires):
        raise click.UsageError("--group, --scope, --read-only and --expires are for a new token: give a NAME")
    if name is not None:
        may = ("read",) if read_only else scopes or ("read", "write", "decide")
        wait_for(tokens.create(db, name, groups, may, expires or "90d", as_json=as_json))
    elif revoke is not None:
        wait_for(tokens.revoke(db, revoke, as_json=as_json))
    else:
        wait_for(tokens.tokens(db, as_json=as_json))


@holdfast.command()
@click.argument("run", metavar="[ID]", required=False, shell_complete=run_ids)
@click.option("--by", metavar="NAME", help="What NAME did.")
@click.option(
    "--action", "actions", metavar="WORD", multiple=True, help="Deeds of this kind: start, approve; repeatable."
)
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, metavar="N", help="The newest N.")
@click.option("--before", type=click.IntRange(1), metavar="N", help="Those before deed N: the page before.")
@click.option(
    "--erase", is_flag=True, help="Take what was decided about, and all free text, out of the deeds that fit."
)
@click.option("--older-than", metavar="TIME", help="With --erase: done longer ago than this: 90d.")
@db_option
@json_option
def audit(
    run: str | None, by: str | None, actions: tuple[str, ...], limit: int, before: int | None, erase: bool,
    older_than: str | None, db: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Print who did what to which run.

    Also through which door, and what was approved. With --erase the values go and the rows stay: who did what, when.
    """
    from holdfast.cli import audit

    if erase and (actions or before is not None):
        raise click.UsageError("--erase takes an ID, --by and --older-than, and neither --action nor --before")
    if erase and run is None and by is None and older_than is None:
        raise click.UsageError("an erased value is gone: say which with an ID, --by or --older-than")
    if older_than is not None and not erase:
        raise click.UsageError("--older-than is for --erase")
    if erase:
        wait_for(audit.erase(db, run, by, older_than, as_json=as_json))
    else:
        wait_for(audit.audit(db, audit.Wanted(run, by, actions, before, limit), as_json=as_json))


@holdfast.command()
@click.argument("file", type=click.Path(dir_okay=False))
@db_option
@json_option
def backup(file: str, db: str | None, as_json: bool) -> None:
    """Copy the store to FILE while it is in use.

    FILE is a store itself, in which nothing is carried: `holdfast --db sqlite:FILE runs` looks at it, `holdfast restore FILE`
    makes a store of either kind of it.
    """
    from holdfast.cli.backup import backup as copy

    wait_for(copy(db, file, as_json=as_json))


@holdfast.command()
@click.argument("file", metavar="[FILE]", required=False, type=click.Path(dir_okay=False))
@click.option("--activate", is_flag=True, help="Let workers carry the runs of a store that was restored.")
@db_option
@json_option
def restore(file: str | None, activate: bool, db: str | None, as_json: bool) -> None:
    """Fill an empty store from the backup in FILE.

    Until `holdfast restore --activate` no run of it is carried and no timer fires, because the original may live on beside it.
    """
    from holdfast.cli import backup as backups

    if activate is (file is not None):
        raise click.UsageError("give the FILE of a backup, or --activate")
    if file is None:
        wait_for(backups.activate(db, as_json=as_json))
    else:
        wait_for(backups.restore(db, file, as_json=as_json))
