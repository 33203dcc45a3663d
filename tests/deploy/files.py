"""The deployment files, as data: documents, and the commands of workers and servers."""

import configparser
import json
import re
import shlex
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
UNIT = DEPLOY / "systemd" / "holdfast-worker@.service"
SERVER_UNIT = DEPLOY / "systemd" / "holdfast-server.service"


def document(path):
    (found,) = yaml.safe_load_all(path.read_text())
    return found


def kind(name, of="worker"):
    """The manifest of this kind that is about the workers, or the servers; or the only one that there is."""
    found = [each for each in map(document, KUBERNETES) if each["kind"] == name]
    (manifest,) = [each for each in found if each["metadata"]["name"] == f"holdfast-{of}" or len(found) == 1]
    return manifest


def compose():
    return document(DEPLOY / "compose.yaml")


def container(of="worker"):
    (found,) = kind("Deployment", of)["spec"]["template"]["spec"]["containers"]
    return found


def instructions():
    """The Dockerfile as (instruction, rest), continued lines joined, comments left out."""
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.startswith("#")]
    text = "\n".join(lines).replace("\\\n", " ")
    return [tuple(line.split(maxsplit=1)) for line in text.splitlines() if line.strip()]


def instruction(name):
    """The last one of this name: the one that counts."""
    return [rest for word, rest in instructions() if word == name][-1]


def unit(path=UNIT):
    """A systemd unit; a key that stands there twice has its values in lines."""
    found = configparser.ConfigParser(strict=False, delimiters="=", interpolation=None, comment_prefixes="#")
    found.optionxform = str
    found.read_string(path.read_text())
    return found


def commands():
    """Every worker that a deployment file runs: where it stands -> its words."""
    return {
        "Dockerfile": [*json.loads(instruction("ENTRYPOINT")), *json.loads(instruction("CMD"))],
        "compose.yaml": ["holdfast", *compose()["services"]["worker"]["command"]],
        "worker.yaml": ["holdfast", *container()["args"]],
        UNIT.name: shlex.split(unit()["Service"]["ExecStart"].replace("${PORT}", "9464").replace("%i", "agents")),
    }


def servers():
    """Every server that a deployment file runs: where it stands -> its words."""
    started = unit(SERVER_UNIT)["Service"]["ExecStart"]
    return {
        "compose.yaml": ["holdfast", *compose()["services"]["server"]["command"]],
        "server.yaml": ["holdfast", *container("server")["args"]],
        SERVER_UNIT.name: shlex.split(started.replace("${HOST}", "127.0.0.1").replace("${PORT}", "8010")),
    }


def option(words, name):
    """The value of an option, written as --name=value or --name value."""
    joined = " ".join(words)
    found = re.search(rf"--{name}[= ](\S+)", joined)
    return found and found[1]
