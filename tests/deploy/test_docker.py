"""The image and the compose file: what a linter of Dockerfiles would ask, and the schema of compose files."""

import json
import re
import subprocess
import sys
import tomllib
from importlib import resources

import check_jsonschema.builtin_schemas.vendor
import jsonschema
import pytest
from tests.deploy.files import DEPLOY, ROOT, commands, compose, instruction, instructions, option, servers

from holdfast.http.server import END_S
from holdfast.words.durations import seconds
from holdfast.worker.health import listening


def test_the_compose_file_fits_its_schema():
    """The schema of the compose specification accepts it, and refuses a wrong one."""
    folder = resources.files(check_jsonschema.builtin_schemas.vendor)
    schema = json.loads(folder.joinpath("compose-spec.json").read_text())
    jsonschema.validate(compose(), schema)
    wrong = compose()
    wrong["services"]["worker"]["replicas"] = 2
    with pytest.raises(jsonschema.ValidationError, match="replicas"):
        jsonschema.validate(wrong, schema)


def test_the_compose_file_waits_for_the_database_and_lets_workers_drain():
    """Two workers start when PostgreSQL is healthy, have longer to stop than the grace, and read the agents of a folder."""
    services = compose()["services"]
    worker = services["worker"]
    assert worker["deploy"]["replicas"] == 2
    assert worker["depends_on"]["postgres"]["condition"] == "service_healthy"
    assert "pg_isready" in services["postgres"]["healthcheck"]["test"][1]
    assert seconds(worker["stop_grace_period"]) > float(option(worker["command"], "grace")) + 5
    assert worker["environment"]["HOLDFAST_URL"].startswith("postgresql://")
    assert "STORE_PASSWORD" not in worker["environment"]["HOLDFAST_URL"]  # a slash or an @ in it would end the URL
    assert worker["environment"]["PGPASSWORD"] == services["server"]["environment"]["PGPASSWORD"] == "${STORE_PASSWORD}"
    (app,) = worker["volumes"]
    assert app.endswith(":/app:ro")
    assert (DEPLOY / "app" / "agents.py").exists()
    assert worker["read_only"]
    assert worker["cap_drop"] == ["ALL"]
    for service in services.values():
        assert re.search(r"^\S+:\d\S*@sha256:|^holdfast$", service["image"]), service["image"]


def test_the_compose_file_has_a_server_for_this_machine():
    """It waits for the database, is asked for its health on its own port, and is reached from this machine alone."""
    server = compose()["services"]["server"]
    port = option(server["command"], "port")
    assert server["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert f":{port}/readyz" in server["healthcheck"]["test"][-1]
    assert server["depends_on"]["postgres"]["condition"] == "service_healthy"
    assert seconds(server["stop_grace_period"]) > END_S + 5
    assert server["restart"] == "unless-stopped"  # until somebody has a token it is refused
    assert (server["read_only"], server["cap_drop"]) == (True, ["ALL"])


def test_images_are_pinned_by_their_digest():
    """The base of the image and every image of others that compose starts have a tag for people and a digest for machines."""
    bases = {rest.split()[0] for word, rest in instructions() if word == "FROM"}
    assert bases == {"${PYTHON}"}
    images = [
        instruction("ARG").removeprefix("PYTHON="),
        *(service["image"] for service in compose()["services"].values()),
    ]
    others = [image for image in images if image != "holdfast"]
    assert len(others) == 2
    for image in others:
        assert re.fullmatch(
            r"(python:3\.1[1-4]\.\d+-slim-\w+|postgres:\d+\.\d+-alpine[\d.]+)@sha256:[0-9a-f]{64}", image
        ), image


def test_the_image_runs_as_nobody_in_particular():
    """The last USER is a number that is not root's, and comes after everything that root has to do."""
    assert instruction("USER") == "10001:10001"
    words = [word for word, _ in instructions()]
    assert "RUN" not in words[words.index("USER") :]
    assert "COPY" not in words[words.index("USER") :]


def test_what_is_copied_is_there_and_reaches_the_builder():
    """Every source of a COPY is in the repository, and .dockerignore lets it through."""
    let_through = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    assert (ROOT / ".dockerignore").read_text().splitlines()[1] == "*"
    for word, rest in instructions():
        if word == "COPY" and not rest.startswith("--from"):
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists(), source
                assert source in let_through, source
    for name in let_through:
        assert (ROOT / name).exists(), name


def test_what_is_installed_is_checked_by_hash_and_has_the_extras():
    """Locked requirements come with hashes, those of the extras too; the project itself adds nothing to them."""
    installs = [rest for word, rest in instructions() if word == "RUN" and "pip install" in rest]
    assert "--require-hashes -r requirements/fleet.txt -r requirements/build.txt" in installs[0]
    assert "--no-deps" in installs[1]
    locked = (ROOT / "requirements" / "fleet.txt").read_text()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for needed in (*extras["postgres"], *extras["metrics"], *extras["server"]):
        assert f"\n{re.split('[<>=]', needed)[0]}==" in locked


def test_the_image_stops_and_is_asked_for_its_health_as_it_should():
    """SIGTERM, which drains; a health check on the port of the command, without any other program than Python."""
    assert instruction("STOPSIGNAL") == "SIGTERM"
    options, _, command = instruction("HEALTHCHECK").partition("CMD ")
    assert float(option(options.split(), "timeout").removesuffix("s")) > 4
    words = json.loads(command)
    assert words[0] == "python"
    assert f":{option(commands()['Dockerfile'], 'port')}/healthz" in words[2]
    assert instruction("EXPOSE").split() == [
        option(commands()["Dockerfile"], "port"),
        option(servers()["compose.yaml"], "port"),
    ]


def test_the_health_check_tells_the_living_from_the_dead():
    """The very command of the image ends with 0 while a worker answers, and with another code when nobody does."""
    words = json.loads(instruction("HEALTHCHECK").partition("CMD ")[2])
    with listening("127.0.0.1", 0) as probes:
        port = probes.url.rpartition(":")[2]
        asked = [sys.executable, *words[1:2], words[2].replace("9464", port)]
        assert subprocess.run(asked, check=False, capture_output=True).returncode == 0
    assert subprocess.run(asked, check=False, capture_output=True).returncode != 0
