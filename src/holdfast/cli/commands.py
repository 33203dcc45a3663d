"""The commands and their options. What they do is in the modules they import when called: `--help` stays quick."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])
STATUSES = ("ready", "running", "waiting", "paused", "completed", "failed", "cancelled")


class Holdfast(click.Group):
    """Lists commands in the order written, and turns our errors into one line and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def main(self, *args: Any, **options: Any) -> Any:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # what a terminal cannot show is no reason to stop
                stream.reconfigure(errors="backslashreplace")
        return super().main(*args, **options)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.exceptions.Exit, click.ClickException, click.Abort):
            raise
        except KeyboardInterrupt:
            ctx.exit(130)
        except Exception as error:  # noqa: BLE001 - what is not ours is raised again
            _explain(ctx, error)


def _explain(ctx: click.Context, error: Exception) -> None:
    from holdfast.errors import HoldfastError

    if not isinstance(error, HoldfastError):
        raise error
    from holdfast.cli.output import BAD_USAGE, say

    say(f"Error: {error}", "red")
    ctx.exit(BAD_USAGE)


def wait_for(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a short command's work."""
    import asyncio

    return asyncio.run(work)


# Options and arguments that several commands have


def _same_everywhere(ctx: click.Context, _: click.Parameter, value: str | None) -> str | None:
    """`--db` may stand before the command or after it."""
    return value if value is not None else ctx.find_root().params.get("db")


def db_option(command: F) -> F:
    """`--db`."""
    text = "The store: sqlite:PATH. Default: $HOLDFAST_URL, else sqlite:holdfast.db in the current folder."
    return click.option("--db", metavar="URL", callback=_same_everywhere, help=text)(command)


def json_option(command: F) -> F:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def _run_ids(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    from holdfast.cli.listing import ids

    try:
        return [run for run in wait_for(ids(ctx.params.get("db"))) if run.startswith(incomplete)]
    except Exception:  # noqa: BLE001 - a completion that fails offers nothing
        return []


def run_argument(command: F) -> F:
    """The id of a run."""
    return click.argument("run", metavar="ID", shell_complete=_run_ids)(command)


def _pairs(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{value!r} is not of the form name=value", ctx, parameter)
        if name in found:
            raise click.BadParameter(f"{name!r} is given twice", ctx, parameter)
        found[name] = text
    return found


def _words(ctx: click.Context, parameter: click.Parameter, value: str | None) -> list[str] | None:
    words = None if value is None else [word.strip() for word in value.split(",")]
    if words is not None and not all(words):
        raise click.BadParameter(f"{value!r} is not a list of names with commas between them", ctx, parameter)
    return words


def _version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        click.echo(f"holdfast {getattr(sys.modules['holdfast'], '__version__', 'unknown')}")
        ctx.exit()


@click.group(cls=Holdfast, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--db", metavar="URL", help="The store, for the command that follows.")
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version.")
def holdfast(db: str | None) -> None:
    """Agents that go on where they stopped. Try `holdfast demo` first."""


# Running


@holdfast.command()
@click.argument("target", metavar="FILE.py:AGENT")
@click.argument("args", nargs=-1)
@click.option("--arg", "named", metavar="NAME=VALUE", multiple=True, callback=_pairs, help="An argument by name.")
@click.option("--id", "run_id", metavar="ID", help="The run's id. The same id again goes on where the run stopped.")
@click.option("--label", "labels", metavar="KEY=VALUE", multiple=True, callback=_pairs, help="A label, for lists.")
@db_option
@json_option
def run(
    target: str, args: tuple[str, ...], named: dict[str, str], run_id: str | None, labels: dict[str, str],
    db: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Run an agent here, or go on with a run of it.

    The agent is FILE.py:AGENT or package.module:AGENT; the name may be left out if there is only one. ARGS are checked
    by the agent's annotations; text that starts with a dash goes after `--`.

    Ctrl-C stops at a safe point, a second one at once. Exit codes: 0 completed, 1 failed, 2 bad usage, 3 paused,
    130 interrupted.
    """
    from holdfast.cli.running import Request
    from holdfast.cli.running import run as run_it

    click.get_current_context().exit(run_it(Request(target, args, named, run_id, labels, db, as_json)))


@holdfast.command()
@click.argument("apps", metavar="APP...", nargs=-1, required=True)
@click.option("--concurrency", type=click.IntRange(1), default=200, show_default=True, help="Runs in memory at once.")
@click.option("--queues", metavar="A,B", callback=_words, help="Serve only runs of these queues. Default: all.")
@click.option("--grace", type=click.FloatRange(0), default=30.0, show_default=True, metavar="SECONDS",
              help="How long running steps may go on when the worker is told to stop.")  # fmt: skip
@click.option("--lease", type=click.FloatRange(1), default=10.0, show_default=True, metavar="SECONDS",
              help="After so long without a sign of life others take its runs over.")  # fmt: skip
@click.option("--name", metavar="NAME", help="Begins the worker's id, which histories show.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), help="Answer /healthz, /readyz and /metrics here; 0: any free port."
)
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="The address of --port; 0.0.0.0 for a cluster's probes."
)
@db_option
def worker(
    apps: tuple[str, ...], concurrency: int, queues: list[str] | None, grace: float, lease: float, name: str | None,
    port: int | None, host: str, db: str | None,
) -> None:  # fmt: skip
    """Serve the agents of modules or files until stopped.

    SIGTERM or Ctrl-C: nothing more is begun, running steps may end within the grace, every run is given back as soon as it
    can be, and the exit code is 0. A second signal stops at once.
    """
    from holdfast.cli.serving import worker as serve

    code = serve(
        db,
        apps,
        host,
        port,
        concurrency=concurrency,
        queues=queues,
        stop_grace_s=grace,
        lease_ttl_s=lease,
        name=name or "",
    )
    click.get_current_context().exit(code)


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
@click.option("--agent", metavar="NAME", help="Only runs of this agent.")
@click.option("--label", "labels", metavar="KEY=VALUE", multiple=True, callback=_pairs, help="Only runs so labelled.")
@click.option("--stuck", is_flag=True, help="Only runs that do not go on by themselves, and why.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="At most so many.")
@db_option
@json_option
def runs(
    status: tuple[str, ...], agent: str | None, labels: dict[str, str], stuck: bool, limit: int, db: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """List runs, newest first.

    With --stuck: those that have been due for a minute and nobody takes, that end their process again and again, or whose
    worker is gone; the longest due first.
    """
    if stuck:
        from holdfast.cli.stuck import stuck_runs as list_runs
    else:
        from holdfast.cli.listing import runs as list_runs

    wait_for(list_runs(db, status, agent, labels, limit, as_json=as_json))


@holdfast.command()
@run_argument
@click.option("--events", is_flag=True, help="Print the raw events.")
@click.option("--svg", metavar="FILE", help="Write the picture to an SVG file.")
@db_option
@json_option
def show(run: str, events: bool, svg: str | None, db: str | None, as_json: bool) -> None:
    """Show a run as a tree: steps, children, waits, interruptions."""
    from holdfast.cli.showing import show as show_it

    wait_for(show_it(db, run, as_json=as_json, events=events, svg=svg))


@holdfast.command()
@click.argument("run", metavar="[ID]", required=False, shell_complete=_run_ids)
@click.option("--after", type=click.IntRange(0), help="Begin after this position (without ID) or this many events.")
@click.option("--no-follow", is_flag=True, help="Print what there is and stop.")
@db_option
@json_option
def tail(run: str | None, after: int | None, no_follow: bool, db: str | None, as_json: bool) -> None:
    """Follow the events of a run, or of all runs."""
    from holdfast.cli.listing import tail as follow

    click.get_current_context().exit(wait_for(follow(db, run, after, follow=not no_follow, as_json=as_json)))


@holdfast.command()
@click.option("--run", metavar="ID", help="Only questions of this run.", shell_complete=_run_ids)
@db_option
@json_option
def approvals(run: str | None, db: str | None, as_json: bool) -> None:
    """List what waits for a person."""
    from holdfast.cli.listing import approvals as list_approvals

    wait_for(list_approvals(db, run, as_json=as_json))


# Acting


@holdfast.command()
@click.argument("question", metavar="ID")
@click.argument("value")
@click.option("--by", metavar="NAME", help="Who answers; the user of this computer by default.")
@click.option("--note", default="", metavar="TEXT", help="A note for the history.")
@db_option
@json_option
def answer(question: str, value: str, by: str | None, note: str, db: str | None, as_json: bool) -> None:
    """Answer a question about a step whose outcome is not known.

    ID is the question's, or a run's with one open question. VALUE is run (it did not happen, run it), fail, or
    '{"result": ...}' (it happened, with this result).
    """
    from holdfast.cli.acting import answer as give

    wait_for(give(db, question, value, by, note, as_json=as_json))


@holdfast.command()
@run_argument
@click.option("--by", metavar="NAME", help="Who does it; the user of this computer by default.")
@db_option
@json_option
def retry(run: str, by: str | None, db: str | None, as_json: bool) -> None:
    """Let a failed run go on from its failure.

    What was recorded before stays; the failed step runs again. A paused run is resumed.
    """
    from holdfast.cli.acting import retry as again

    wait_for(again(db, run, by, as_json=as_json))


@holdfast.command()
@run_argument
@click.option("--by", metavar="NAME", help="Who does it; the user of this computer by default.")
@db_option
@json_option
def resume(run: str, by: str | None, db: str | None, as_json: bool) -> None:
    """Let a paused run go on."""
    from holdfast.cli.acting import resume as go_on

    wait_for(go_on(db, run, by, as_json=as_json))


@holdfast.command()
@run_argument
@click.argument("topic")
@click.argument("value", required=False)
@click.option("--key", metavar="KEY", help="The same key twice is one message.")
@db_option
@json_option
def send(run: str, topic: str, value: str | None, key: str | None, db: str | None, as_json: bool) -> None:
    """Send a message to a run. VALUE is JSON, or else text."""
    from holdfast.cli.acting import send as send_it

    wait_for(send_it(db, run, topic, value, key, as_json=as_json))


@holdfast.command()
@click.option("--older-than", required=True, metavar="TIME", help="Finished longer ago than this: 30d, 12h.")
@click.option("--status", multiple=True, type=click.Choice(("completed", "failed", "cancelled")),
              help="Runs that ended so; repeatable. Default: completed and cancelled.")  # fmt: skip
@db_option
@json_option
def prune(older_than: str, status: tuple[str, ...], db: str | None, as_json: bool) -> None:
    """Delete old finished runs with their children."""
    from holdfast.cli.acting import prune as delete_old

    wait_for(delete_old(db, older_than, status or ("completed", "cancelled"), as_json=as_json))


@holdfast.command()
@run_argument
@db_option
@json_option
def delete(run: str, db: str | None, as_json: bool) -> None:
    """Delete a finished run with its children."""
    from holdfast.cli.acting import delete as delete_it

    wait_for(delete_it(db, run, as_json=as_json))


@holdfast.command()
@db_option
@json_option
def doctor(db: str | None, as_json: bool) -> None:
    """Check the store and say what is wrong.

    The exit code is 1 if anything is: a damaged file, a paused run, one that is due and nobody serves, or one that
    ends its process again and again.
    """
    from holdfast.cli.health import doctor as examine

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
