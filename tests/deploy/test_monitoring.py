"""The alert rules and the board: whole files that Prometheus and Grafana take, about metrics that there are."""

import json
import re
import shutil
import subprocess

import pytest
import yaml
from tests.deploy.files import DEPLOY

from holdfast.http.health import METRICS as SERVER_METRICS
from holdfast.worker.metrics import METRICS

ALERTS = DEPLOY / "prometheus" / "alerts.yaml"
BOARD = DEPLOY / "grafana" / "holdfast.json"
KNOWN = {each.name: each for each in (*METRICS, *SERVER_METRICS)}
DURATION = re.compile(r"\d+[smhd]")


def rules():
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    assert set(group) == {"name", "rules"}
    return group["rules"]


def panels():
    return json.loads(BOARD.read_text())["panels"]


def expressions():
    return [rule["expr"] for rule in rules()] + [target["expr"] for panel in panels() for target in panel["targets"]]


def used(expression):
    """The metrics of an expression: name, suffix of a histogram, and the labels that it names."""
    for name, matchers in re.findall(r"(holdfast_\w+)(?:\{([^}]*)\})?", expression):
        base = re.sub(r"_(bucket|count|sum)$", "", name)
        yield name, base, set(re.findall(r"(\w+)\s*(?:=|!=|=~)", matchers))


@pytest.mark.parametrize("expression", expressions())
def test_every_metric_and_label_that_is_named_exists(expression):
    """A rule about a metric that nobody has never fires; a counter is never looked at without a rate."""
    labels_named = {label.strip() for found in re.findall(r"by \(([^)]*)\)", expression) for label in found.split(",")}
    known_labels = {"le", "instance"}
    for name, base, matched in used(expression):
        metric = KNOWN[base if base in KNOWN else name]
        assert name == base or metric.kind == "histogram", name
        assert matched <= set(metric.labels)
        known_labels |= set(metric.labels)
        if metric.kind != "gauge":
            assert re.search(rf"(rate|increase)\({re.escape(name)}(\{{[^}}]*\}})?\[\d+[mh]\]\)", expression), expression
        if name.startswith(("holdfast_store_", "holdfast_backlog_")) and name != "holdfast_store_up":
            assert f"sum({name}" not in expression, "the same from every process: take the max"
    assert labels_named <= known_labels
    assert expression.count("(") == expression.count(")")


def test_every_rule_is_whole():
    """A name of its own, a time, who is called, and two sentences; labels in them are those that the expression keeps."""
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names) >= 10
    for rule in rules():
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert DURATION.fullmatch(rule.get("for", "1m"))
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert set(rule["annotations"]) == {"summary", "description"}
        kept = {label.strip() for found in re.findall(r"by \(([^)]*)\)", rule["expr"]) for label in found.split(",")}
        plain = not re.search(r"\b(sum|max|min)\b", rule["expr"])
        for label in re.findall(r"\$labels\.(\w+)", str(rule["annotations"])):
            assert label in kept or (plain and label == "instance"), (rule["alert"], label)


def test_every_metric_that_alerts_are_about_is_explained():
    """The page for operators has a line for each of them."""
    page = (DEPLOY.parent / "docs" / "operations.md").read_text()
    table = page.split("## What to alert on")[1].split("\n## ")[0]
    for rule in rules():
        for _, base, _ in used(rule["expr"]):
            assert base in table, rule["alert"]


def test_the_board_is_whole():
    """Panels have places that do not overlap, ids of their own and a source that is chosen when it is imported."""
    board = json.loads(BOARD.read_text())
    assert [each["type"] for each in board["templating"]["list"]] == ["datasource"]
    ids, taken = set(), set()
    for panel in board["panels"]:
        assert panel["targets"] and panel["title"] and panel["id"] not in ids
        ids.add(panel["id"])
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24 and not cells & taken
        taken |= cells
        assert panel["datasource"]["uid"] == "${datasource}"
        for target in panel["targets"]:
            kept = {label for found in re.findall(r"by \(([^)]*)\)", target["expr"]) for label in found.split(", ")}
            plain = not re.search(r"\b(sum|max|min)\b", target["expr"])
            assert all(label in kept or plain for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))


def test_prometheus_takes_the_rules():
    """By its own tool, where there is one."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: apt-get install prometheus): the rules were not checked by it")
    done = subprocess.run([promtool, "check", "rules", str(ALERTS)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
