"""The deployment files, as data: documents, commands, and how long each lets a worker drain."""

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


def document(path):
    (found,) = yaml.safe_load_all(path.read_text())
    return found


def kind(name):
    """The one manifest of this kind."""
    (found,) = [each for each in map(document, KUBERNETES) if each["kind"] == name]
    return found


def compose():
    return document(DEPLOY / "compose.yaml")


def container():
    (found,) = kind("Deployment")["spec"]["template"]["spec"]["containers"]
    return found


def instructions():
    """The Dockerfile as (instruction, rest), continued lines joined, comments left out."""
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.startswith("#")]
    text = "\n".join(lines).replace("\\\n", " ")
    return [tuple(line.split(maxsplit=1)) for line in text.splitlines() if line.strip()]


def instruction(name):
    """The last one of this name: the one that counts."""
    return [rest for word, rest in instructions() if word == name][-1]


def unit():
    """The systemd unit; a key that stands there twice has its values in lines."""
    found = configparser.ConfigParser(strict=False, delimiters="=", interpolation=None, comment_prefixes="#")
    found.optionxform = str
    found.read_string(UNIT.read_text())
    return found


def commands():
    """Every command that a deployment file runs: where it stands -> its words."""
    return {
        "Dockerfile": [*json.loads(instruction("ENTRYPOINT")), *json.loads(instruction("CMD"))],
        "compose.yaml": ["holdfast", *compose()["services"]["worker"]["command"]],
        "worker.yaml": ["holdfast", *container()["args"]],
        UNIT.name: shlex.split(unit()["Service"]["ExecStart"].replace("${PORT}", "9464").replace("%i", "agents")),
    }


def option(words, name):
    """The value of an option, written as --name=value or --name value."""
    joined = " ".join(words)
    found = re.search(rf"--{name}[= ](\S+)", joined)
    return found and found[1]
