"""Commands that run agents and look at runs. What they do is in the modules they import when called: `--help` stays quick."""

from __future__ import annotations

from typing import Any

import click
from click.core import ParameterSource

from holdfast.cli.group import (
    STATUSES,
    agent_option,
    db_option,
    holdfast,
    json_option,
    pairs,
    past,
    run_argument,
    run_ids,
    seconds_of,
    wait_for,
    words,
)  # fmt: skip

# Running


@holdfast.command()
@click.argument("target", metavar="FILE.py:AGENT")
@click.argument("args", nargs=-1)
@click.option("--arg", "named", metavar="NAME=VALUE", multiple=True, callback=pairs, help="An argument by name.")
@click.option("--id", "run_id", metavar="ID", help="The run's id. The same id again goes on where the run stopped.")
@click.option("--label", "labels", metavar="KEY=VALUE", multiple=True, callback=pairs, help="A label, for lists.")
@click.option("--budget", metavar="usd=5,tokens=100000", help="What it may spend; instead of what its agent declares.")
@db_option
@json_option
def run(
    target: str, args: tuple[str, ...], named: dict[str, str], run_id: str | None, labels: dict[str, str],
    budget: str | None, db: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Run an agent here, or go on with a run of it.

    The agent is FILE.py:AGENT or package.module:AGENT; the name may be left out if there is only one. ARGS are checked
    by the agent's annotations; text that starts with a dash goes after `--`.

    Ctrl-C stops at a safe point, a second one at once. Exit codes: 0 completed, 1 failed, 2 bad usage, 3 paused,
    130 interrupted.
    """
    from holdfast.cli.run import Request
    from holdfast.cli.run import run as run_it

    click.get_current_context().exit(run_it(Request(target, args, named, run_id, labels, db, as_json, budget)))


@holdfast.command()
@click.argument("agent", metavar="AGENT")
@click.argument("args", nargs=-1)
@click.option("--arg", "named", metavar="NAME=VALUE", multiple=True, callback=pairs, help="An argument by name.")
@click.option("--id", "run_id", metavar="ID", help="The run's id. The same id again is the same run.")
@click.option("--label", "labels", metavar="KEY=VALUE", multiple=True, callback=pairs, help="A label, for lists.")
@click.option("--after", metavar="TIME", help="Begin so long from now: 30m, 12h.")
@click.option("--budget", metavar="usd=5,tokens=100000", help="What it may spend; instead of what its agent declares.")
@db_option
@json_option
def start(
    agent: str, args: tuple[str, ...], named: dict[str, str], run_id: str | None, labels: dict[str, str],
    after: str | None, budget: str | None, db: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Start a run for the workers, and return at once.

    AGENT is the name under which a worker has published it, or FILE.py:AGENT, for which no worker is needed yet. ARGS are
    checked before anything is stored; text that starts with a dash goes after `--`. Prints the run's id.
    """
    from holdfast.cli.start import Start
    from holdfast.cli.start import start as start_it

    wait_for(start_it(db, Start(agent, args, named, run_id, labels, after, budget), as_json=as_json))


@holdfast.command()
@click.argument("apps", metavar="APP...", nargs=-1, required=True)
@click.option("--concurrency", type=click.IntRange(1), default=200, show_default=True, help="Runs in memory at once.")
@click.option("--queues", metavar="A,B", callback=words, help="Serve only runs of these queues. Default: all.")
@click.option("--grace", type=click.FloatRange(0), default=30.0, show_default=True, metavar="SECONDS",
              help="How long running steps may go on when the worker is told to stop.")  # fmt: skip
@click.option("--lease", type=click.FloatRange(1), default=10.0, show_default=True, metavar="SECONDS",
              help="After so long without a sign of life others take its runs over.")  # fmt: skip
@click.option("--name", metavar="NAME", help="Begins the worker's id, which histories show.")
@click.option("--code-version", "version", metavar="TEXT", envvar="HOLDFAST_CODE_VERSION",
              help="The version of the code, for people: `doctor` shows which ones run.")  # fmt: skip
@click.option("--audit-retention", "retention_s", metavar="TIME", callback=seconds_of,
              help="Erase values in the audit that are older than this, 90d for example. Default: they stay.")  # fmt: skip
@click.option(
    "--port", type=click.IntRange(0, 65_535), help="Answer /healthz, /readyz and /metrics here; 0: any free port."
)
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="The address of --port; 0.0.0.0 for a cluster's probes."
)
@click.option("--quiet", is_flag=True, help="Say nothing of what runs do; warnings and errors are still printed.")
@db_option
def worker(
    apps: tuple[str, ...], quiet: bool, concurrency: int, queues: list[str] | None, grace: float, lease: float,
    name: str | None, version: str | None, retention_s: float | None, port: int | None, host: str, db: str | None,
) -> None:  # fmt: skip
    """Serve the agents of modules or files until stopped.

    SIGTERM or Ctrl-C: nothing more is begun, running steps may end within the grace, every run is given back as soon as it
    can be, and the exit code is 0. A second signal stops at once.
    """
    from holdfast.cli.worker import worker as serve

    code = serve(
        db,
        apps,
        host,
        port,
        quiet=quiet,
        concurrency=concurrency,
        queues=queues,
        stop_grace_s=grace,
        lease_ttl_s=lease,
        name=name or "",
        version=version,
        audit_retention_s=retention_s,
    )
    click.get_current_context().exit(code)


@holdfast.command()
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="The address; any but this computer's needs a token."
)
@click.option("--port", type=click.IntRange(0, 65_535), default=8010, show_default=True, help="0: any free port.")
@click.option(
    "--deadline",
    default="30s",
    show_default=True,
    metavar="DURATION",
    help="How long a request may wait for the store.",
)
@click.option(
    "--socket", "path", metavar="PATH", help="Listen at a Unix socket instead, for your account and root alone."
)
@click.option(
    "--limits",
    default="",
    metavar="NAME=VALUE,...",
    envvar="HOLDFAST_LIMITS",
    help="Of connections; default: connections=2000,address=200,token=1000,head=10s,body=30s,send=20s.",
)
@db_option
def serve(host: str, port: int, deadline: str, path: str | None, limits: str, db: str | None) -> None:
    """Serve the store over HTTP until stopped.

    Runs are started and followed, and people's decisions taken; none is carried: workers do that. Needs holdfast[server].

    Who asks has a token. On a store that has none one is made for you, and a link is printed that opens a session in a browser.

    SIGTERM or Ctrl-C: whoever follows something is told to come back, and the exit code is 0. A second signal stops at once.
    """
    from holdfast.cli.serve import serve as listen

    context = click.get_current_context()
    named = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
    if path is not None and any(context.get_parameter_source(name) in named for name in ("host", "port")):
        raise click.UsageError("--socket is in the place of --host and --port: give one or the other")
    click.get_current_context().exit(listen(db, host, port, path, deadline, limits))


@holdfast.command()
@click.option("--keep", metavar="DIR", help="A folder for the files of the demo; a temporary one by default.")
@json_option
def demo(keep: str | None, as_json: bool) -> None:
    """See an agent survive being killed."""
    from holdfast.demo.play import play

    click.get_current_context().exit(play(keep, as_json=as_json))


# Looking


@holdfast.command()
@click.option("--status", multiple=True, type=click.Choice(STATUSES), help="Only runs in this state; repeatable.")
@agent_option("Only runs of this agent.")
@click.option("--label", "labels", metavar="KEY=VALUE", multiple=True, callback=pairs, help="Only runs so labelled.")
@click.option(
    "--since", metavar="TIME", callback=past, help="Only runs started since then: 2h (ago), 2026-01-31T14:00."
)
@click.option("--until", metavar="TIME", callback=past, help="Only runs started until then.")
@click.option(
    "--search", metavar="TEXT", help="Only runs with this text in their id, agent, labels, arguments or error."
)
@click.option("--counts", is_flag=True, help="Only how many, by agent and state.")
@click.option("--stuck", is_flag=True, help="Only runs that do not go on by themselves, and why.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="At most so many.")
@db_option
@json_option
def runs(
    status: tuple[str, ...], agent: str | None, labels: dict[str, str], since: Any, until: Any, search: str | None,
    counts: bool, stuck: bool, limit: int, db: str | None, as_json: bool,
) -> None:  # fmt: skip
    """List runs, newest first, or count them.

    With --stuck: those that no live worker serves or has taken for a minute, that are paused, that end their process again
    and again, or whose worker is gone; the longest due first.
    """
    if stuck:
        from holdfast.cli.stuck import stuck_runs

        if counts or search or since is not None or until is not None:
            raise click.UsageError("--stuck takes --status, --agent, --label and --limit")
        wait_for(stuck_runs(db, status, agent, labels, limit, as_json=as_json))
        return
    from holdfast.cli import runs

    fits = {"status": status or None, "agent": agent, "labels": labels or None, "since": since, "until": until,
            "search": search}  # fmt: skip
    if counts:
        wait_for(runs.counts(db, fits, as_json=as_json))
    else:
        wait_for(runs.runs(db, fits, limit, as_json=as_json))


@holdfast.command()
@run_argument
@click.option("--events", is_flag=True, help="Print the raw events.")
@click.option("--audit", is_flag=True, help="Print who did what to it.")
@click.option("--failed", is_flag=True, help="Only what failed, and what it is in.")
@click.option("--last", type=click.IntRange(1), metavar="N", help="Of each list only the last N.")
@click.option("--svg", metavar="FILE", help="Write the picture to an SVG file.")
@db_option
@json_option
def show(
    run: str, events: bool, audit: bool, failed: bool, last: int | None, svg: str | None, db: str | None, as_json: bool
) -> None:
    """Show a run as a tree.

    Its steps, children, waits and interruptions, and what it needs to go on.

    Of more than 30 calls of one name the first and the last ten are shown.
    """
    if audit:
        from holdfast.cli.audit import Wanted
        from holdfast.cli.audit import audit as tell

        wait_for(tell(db, Wanted(run, limit=1_000), as_json=as_json))
        return
    from holdfast.cli.show import show as show_it

    wait_for(show_it(db, run, as_json=as_json, events=events, svg=svg, failed=failed, last=last))


@holdfast.command()
@click.argument("run", metavar="[ID]", required=False, shell_complete=run_ids)
@click.option("--after", type=click.IntRange(0), help="Begin after this position (without ID) or this many events.")
@click.option("--no-follow", is_flag=True, help="Print what there is and stop.")
@click.option("--stream", metavar="NAME", help="Print what the run writes to this stream; --after is an offset then.")
@db_option
@json_option
def tail(
    run: str | None, after: int | None, no_follow: bool, stream: str | None, db: str | None, as_json: bool
) -> None:
    """Follow the events of a run or of all, or a stream."""
    if stream is not None:
        from holdfast.cli.tail import follow as read

        if run is None:
            raise click.UsageError("--stream: name the run whose stream it is")
        reading = read(db, run, stream, after or 0, to_end=not no_follow, as_json=as_json)
        click.get_current_context().exit(wait_for(reading))
    from holdfast.cli.runs import tail as follow

    click.get_current_context().exit(wait_for(follow(db, run, after, follow=not no_follow, as_json=as_json)))


@holdfast.command()
@click.argument("conversation", metavar="[ID]", required=False)
@click.option(
    "--last", type=click.IntRange(1), default=50, show_default=True, help="At most so many, the newest of it."
)
@click.option("--delete", is_flag=True, help="Delete the conversation with all that was said in it.")
@db_option
@json_option
def conversations(conversation: str | None, last: int, delete: bool, db: str | None, as_json: bool) -> None:
    """List conversations, or show what was said in one."""
    from holdfast.cli import conversations

    if delete and conversation is None:
        raise click.UsageError("--delete: name the conversation to be deleted")
    if conversation is None:
        wait_for(conversations.conversations(db, last, as_json=as_json))
    elif delete:
        wait_for(conversations.delete(db, conversation, as_json=as_json))
    else:
        wait_for(conversations.messages(db, conversation, last, as_json=as_json))


@holdfast.command()
@db_option
@json_option
def doctor(db: str | None, as_json: bool) -> None:
    """Check the store and say what is wrong.

    The exit code is 1 if anything is: a damaged file, a failed or a paused run, one that is due and nobody serves,
    one that ends its process again and again, or a token that expires within 14 days.
    """
    from holdfast.cli.doctor import doctor as examine

    click.get_current_context().exit(wait_for(examine(db, as_json=as_json)))


@holdfast.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    bash: add eval "$(holdfast completion bash)" to ~/.bashrc; zsh: the same with zsh in ~/.zshrc; fish: write the
    output to ~/.config/fish/completions/holdfast.fish.
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(holdfast, {}, "holdfast", "_HOLDFAST_COMPLETE").source())
