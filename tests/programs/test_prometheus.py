"""Prometheus itself: it reads the metrics of a live server, finds nothing to complain about in them, and its alerts fire when they should."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from simrun.model.access import new_token, token_hash
from simrun.service import catalogue
from tests.cli.served import Served
from tests.scenario.serving import wait

pytestmark = pytest.mark.programs

MONITORING = Path(__file__).parents[2] / "docs" / "monitoring"
RULES = MONITORING / "simrun.rules.yaml"
DASHBOARD = MONITORING / "simrun.dashboard.json"
NAME = re.compile(r"\bsimrun_[a-z_]+")


def program(name: str) -> str:
    """Find a program of Debian's package prometheus."""
    found = shutil.which(name)
    assert found, f"{name} is missing: .ci/run takes it out of Debian's package prometheus"
    return found


def promtool(*arguments: str | Path, text: str | None = None) -> str:
    done = subprocess.run(
        [program("promtool"), *map(str, arguments)],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@contextmanager
def scraping(directory: Path, target: str, token: str) -> Iterator[str]:
    """Run a Prometheus that scrapes a server as somebody; its address."""
    directory.mkdir()
    (directory / "token").write_text(token)
    job = {
        "job_name": "simrun",
        "authorization": {"credentials_file": str(directory / "token")},
        "static_configs": [{"targets": [target]}],
    }
    config = {
        "global": {"scrape_interval": "500ms", "evaluation_interval": "500ms"},
        "rule_files": [str(RULES)],
        "scrape_configs": [job],
    }
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
    log = directory / "log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [
                program("prometheus"),
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'data'}",
                "--web.listen-address=127.0.0.1:0",
            ],
            stdout=stream,
            stderr=stream,
            cwd=directory,
        )
    try:

        def ready() -> bool:
            assert process.poll() is None, log.read_text()
            return "Server is ready" in log.read_text()

        wait("Prometheus", ready, 50)
        found = re.search(r'"Listening on" address=(\S+)', log.read_text())
        assert found, log.read_text()
        yield f"http://{found[1]}"
    finally:
        process.kill()
        process.wait()


def query(url: str, expression: str) -> list[dict[str, Any]]:
    where = f"{url}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
    with urllib.request.urlopen(where, timeout=20) as answer:
        result = json.load(answer)["data"]["result"]
    assert isinstance(result, list)
    return result


def test_the_rules_are_well_formed() -> None:
    assert "SUCCESS" in promtool("check", "rules", RULES)


def test_the_alerts_fire_when_they_should_and_not_before() -> None:
    assert "SUCCESS" in promtool("test", "rules", MONITORING / "simrun.rules.test.yaml")


def test_every_alert_has_its_case() -> None:
    rules = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
    cases = (MONITORING / "simrun.rules.test.yaml").read_text()

    for rule in rules:
        assert f'alertname="{rule["alert"]}"' in cases
        assert set(rule["annotations"]) == {"summary", "description"}


@pytest.mark.parametrize("file", [RULES, MONITORING / "simrun.rules.test.yaml", DASHBOARD])
def test_only_metrics_that_exist_are_asked_for(file: Path) -> None:
    names = {
        re.sub(r"_(bucket|sum|count)$", "", name) if "_seconds_" in name else name
        for name in NAME.findall(file.read_text())
    }

    assert names
    assert names <= {metric.full_name for metric in catalogue.ALL}


def test_prometheus_scrapes_a_live_server_and_knows_what_ran(tmp_path: Path) -> None:
    token, own = new_token(), new_token()
    tokens = [
        {"name": "prometheus", "sha256": token_hash(token), "scope": "read"},
        {"name": "anna", "sha256": token_hash(own), "scope": "run", "groups": ["default"]},
    ]
    (tmp_path / "tokens.yaml").write_text(json.dumps(tokens))
    options = ("--tokens", str(tmp_path / "tokens.yaml"))
    with (
        Served(tmp_path / "store", *options) as server,
        scraping(tmp_path / "prometheus", f"127.0.0.1:{server.port}", token) as prometheus,
    ):
        request = urllib.request.Request(
            f"{server.url}/metrics", headers={"Authorization": f"Bearer {token}"}
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            text = answer.read().decode()
        promtool("check", "metrics", text=text)
        submitted = submit(server.url, own)

        def counted() -> bool:
            found = query(prometheus, 'simrun_runs{state="succeeded"}')
            return bool(found) and float(found[0]["value"][1]) == 1

        wait(f"the end of {submitted} in Prometheus", counted, 60)
        (up,) = query(prometheus, 'up{job="simrun"}')
        assert up["value"][1] == "1"
        (ended,) = query(prometheus, 'simrun_attempts_ended_total{reason="completed"}')
        assert float(ended["value"][1]) == 1
        assert query(prometheus, 'ALERTS{alertstate="firing"}') == []


def submit(url: str, token: str) -> str:
    """Submit a run of one short task; its id."""
    submission = {
        "workflow": {"tasks": {"only": {"type": "only"}}},
        "types": {"only": {"name": "only", "command": ["true"], "resources": {"memory": "64Mi"}}},
    }
    request = urllib.request.Request(
        f"{url}/api/v1/runs",
        data=json.dumps({"submission": submission}).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        return str(json.load(answer)["id"])


def test_every_panel_of_the_dashboard_asks_what_prometheus_understands(tmp_path: Path) -> None:
    """Each question as the rule of a record, which promtool parses."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    asked = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    records = [
        {"record": f"panel:{number}", "expr": expr.replace("$instance", ".*")}
        for number, expr in enumerate(asked)
    ]
    rules = tmp_path / "rules.yaml"
    rules.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": records}]}))

    assert f"{len(asked)} rules found" in promtool("check", "rules", rules)
