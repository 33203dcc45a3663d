"""The systemd units: read by systemd itself where there is one, and by us everywhere."""

import re
import shutil
import subprocess
import sys

import pytest
from tests.deploy.files import SERVER_UNIT, UNIT, commands, option, unit

from holdfast.http.server import END_S, Limits

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed: the unit was not read by systemd"
)


@pytest.fixture(params=[UNIT, SERVER_UNIT], ids=lambda path: path.name)
def installed(request, tmp_path):
    """Each unit with a program that is there."""
    copy = tmp_path / request.param.name
    copy.write_text(request.param.read_text().replace("/opt/holdfast/bin/holdfast", sys.executable))
    return copy


@needs_systemd
def test_systemd_accepts_the_unit(installed):
    """`systemd-analyze verify` has nothing to say about it."""
    found = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(installed)], check=False, capture_output=True, text=True
    )
    assert (found.returncode, found.stderr) == (0, "")


@needs_systemd
def test_systemd_finds_little_to_attack(installed):
    """The exposure level that systemd computes is below 2 of 10."""
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(installed)]
    found = subprocess.run(command, check=False, capture_output=True, text=True)
    if "unrecognized option" in found.stderr or "Unknown" in found.stderr:
        pytest.skip(f"this systemd cannot examine a file: {found.stderr.strip()}")
    level = re.search(r"exposure level for \S+: ([\d.]+)", found.stdout)
    assert level is not None, found.stdout + found.stderr
    assert float(level[1]) < 2.0


def test_the_unit_drains_and_comes_back():
    """SIGTERM to the worker alone, longer to stop than the grace, started again when it fails and not when it is stopped."""
    service = unit()["Service"]
    assert (service["KillSignal"], service["KillMode"], service["Restart"]) == ("SIGTERM", "mixed", "on-failure")
    assert float(service["TimeoutStopSec"]) > float(option(commands()[UNIT.name], "grace")) + 5


def test_the_unit_gives_the_worker_one_folder_and_no_rights():
    """A user of its own, a state folder that is the default store's, and the rest read only."""
    service = unit()["Service"]
    assert service["DynamicUser"] == service["NoNewPrivileges"] == service["PrivateTmp"] == "yes"
    assert (service["ProtectSystem"], service["CapabilityBoundingSet"]) == ("strict", "")
    assert f"sqlite:/var/lib/{service['StateDirectory']}/" in service["Environment"]
    assert "PORT=9464" in service["Environment"].split()
    assert service["EnvironmentFile"].startswith("-/etc/holdfast/")


def test_the_server_has_the_folder_and_the_limits_of_the_workers():
    """All that protects the machine from a worker protects it from the server; it has time to end its requests."""
    worker, server = unit()["Service"], unit(SERVER_UNIT)["Service"]
    own = {"Environment", "EnvironmentFile", "ExecStart", "TimeoutStopSec"}
    assert {name: server[name] for name in server if name not in own} == {
        name: worker[name] for name in worker if name not in own
    }
    assert "HOLDFAST_URL=sqlite:/var/lib/holdfast/" in server["Environment"]
    assert float(server["TimeoutStopSec"]) > END_S + 5
    assert int(server["LimitNOFILE"]) > Limits().connections + 1_000
