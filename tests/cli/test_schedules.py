"""`holdfast schedules`: what begins by itself, listed, made and steered at a terminal."""

import asyncio
import re
import shlex

import holdfast

STORE = "sqlite:holdfast.db"


@holdfast.agent(schedule=holdfast.Schedule("0 7 * * mon", tz="Europe/Vienna"))
async def weekly() -> None: ...


@holdfast.agent(schedule=holdfast.Schedule(every="1s", overlap="queue", catch_up="all"))
async def held() -> None:
    await holdfast.receive("go")


@holdfast.agent
async def sweep(team: str = "all") -> str:
    return team


def served():
    async def main():
        async with holdfast.open(STORE, agents=[weekly, sweep]) as hf:
            while not await hf.schedules():
                await asyncio.sleep(0.01)

    asyncio.run(main())


def test_listed_made_and_steered(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    served()
    (declared,) = cli.json("schedules")["schedules"]
    assert (declared["name"], declared["declared"], declared["state"]) == ("weekly", True, "active")
    made = cli.json("schedules", "s", "--agent", "sweep", "--every", "1h", "--args", '{"team": "a"}')
    assert (made["times"], len(made["next"]), made["last_run"]) == ("every 1h", 5, None)
    changed = cli("schedules", "s", "--agent", "sweep", "--cron", "0 7 * * *", "--tz", "Europe/Vienna").stdout
    assert "s: sweep, 0 7 * * * Europe/Vienna; active, made by hand." in changed
    listed = cli("schedules").stdout
    assert "weekly" in listed
    assert "Times are in UTC." in listed
    assert "paused" in cli("schedules", "s", "--pause").stdout
    assert cli.json("schedules", "s")["next"] == []
    assert cli.json("schedules", "s", "--resume")["state"] == "active"
    (run,) = cli.json("schedules", "s", "--trigger")["runs"]
    assert run.startswith("s@")
    assert f"Last run: {run} (ready). Begun: 1, missed: 0." in cli("schedules", "s").stdout
    filled = cli("schedules", "s", "--backfill", "2026-11-02", "2026-11-04").stdout.split()
    assert filled == ["s@2026-11-02T06:00:00Z", "s@2026-11-03T06:00:00Z"]
    assert "no time in between" in cli("schedules", "s", "--backfill", "2026-11-02", "2026-11-04").stdout
    cli("delete", run)
    assert "is deleted" in cli("schedules", "s", "--delete").stdout
    assert [each["name"] for each in cli.json("schedules")["schedules"]] == ["weekly"]
    deeds = [deed for deed in cli.json("audit")["audit"] if deed["action"] != "delete"]
    assert {deed["subject"] for deed in deeds} == {"schedule s"}
    lines = [line for line in cli("audit").stdout.splitlines()[1:] if " delete " not in line]
    assert len(lines) == len(deeds) and all("schedule s" in line for line in lines), lines


def test_what_can_be_declared_can_be_said_and_is_shown(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    served()
    options = ["--jitter", "5m", "--overlap", "queue", "--catch-up", "all", "--args", '{"team": "a"}']
    made = cli.json("schedules", "s", "--agent", "sweep", "--every", "90m", *options)
    assert (made["times"], made["overlap"], made["catch_up"]) == ("every 1h30m", "queue", "all")
    assert (made["jitter_s"], made["args"], made["waiting"]) == (300.0, {"team": "a"}, 0)
    shown = cli("schedules", "s").stdout
    assert "If the run before goes on: queue. Of times that could not begin: all." in shown
    assert "A run begins up to 5m after its time." in shown
    assert 'Arguments: {"team": "a"}' in shown
    for listed in (cli("schedules").stdout, cli("triggers").stdout):
        assert "every 1h30m, overlap=queue, catch_up=all, jitter=5m" in listed
    assert cli.json("schedules", "s", "--agent", "sweep", "--every", "1h")["overlap"] == "skip"  # it is another one now


def test_what_waits_when_a_schedule_is_paused_or_deleted_is_told(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")

    async def main():
        async with holdfast.open(STORE, agents=[held]) as hf:
            while not await hf.schedules():
                await asyncio.sleep(0.01)
            while (await hf.get_schedule("held").info()).waiting < 2:
                await asyncio.sleep(0.01)

    asyncio.run(main())
    info = cli.json("schedules", "held")
    assert info["waiting"] >= 2
    assert f"for the end of {info['last_run']}." in cli("schedules", "held").stdout
    assert re.search(
        r"held +held +every 1s, overlap=queue, catch_up=all .* waiting, \d+ behind it +1", cli("schedules").stdout
    )
    paused = cli("schedules", "held", "--pause").stdout
    assert "times of held had come and waited. They are missed; to begin what has come since its last run:" in paused
    assert cli.json("schedules", "held")["missed"] >= 2
    (line,) = [line for line in paused.splitlines() if "--backfill" in line]
    filled = cli(*shlex.split(line)[1:]).stdout.split()
    assert len(filled) >= 2
    assert cli.json("audit")["audit"][-1]["data"]["schedule"] == "held"


def test_what_is_refused(cli):
    served()
    for words, told in (
        (["nobody"], "there is no schedule 'nobody'"),
        (["nobody", "--pause"], "there is no schedule 'nobody'"),
        (["a b"], "is not the name of a schedule"),
        (["--pause"], "name the schedule"),
        (["weekly", "--pause", "--resume"], "give one of"),
        (["weekly", "--delete"], "take it out of the code, or pause it"),
        (["weekly", "--agent", "sweep", "--every", "1h"], "give yours another name"),
        (["weekly", "--cron", "0 7 * * *"], "give --agent too"),
        (["s", "--agent", "sweep"], "give its times: --cron '0 7 * * mon-fri' or --every 15m"),
        (["s", "--agent", "sweep", "--every", "1h", "--cron", "0 7 * * *"], "and not both"),
        (["s", "--agent", "sweep", "--every", "1h", "--tz", "Europe/Vienna"], "is for cron lines"),
        (["s", "--agent", "sweep", "--every", "1h", "--overlap", "both"], "is not one of"),
        (["s", "--agent", "sweep", "--every", "1h", "--jitter", "soon"], "is not a duration"),
        (["s", "--overlap", "queue"], "give --agent too"),
        (["s", "--agent", "nobody", "--every", "1h"], "nobody"),
        (["s", "--agent", "sweep", "--cron", "7"], "is not a cron line"),
        (["s", "--agent", "sweep", "--every", "1h", "--args", "{"], "is not JSON"),
        (["s", "--agent", "sweep", "--every", "1h", "--args", "[1]"], "give arguments by name"),
        (["weekly", "--backfill", "soon", "later"], "is not a time"),
    ):
        refused = cli("schedules", *words)
        assert refused.exit_code != 0
        assert told in " ".join(refused.stderr.split()), (words, refused.stderr)


def test_none(cli):
    asyncio.run(opened())
    assert "No schedules in" in cli("schedules").stdout


async def opened():
    async with holdfast.open(STORE):
        pass
