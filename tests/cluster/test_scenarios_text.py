"""Text of users that Argo, the kubelet or a shell would read something into goes through a whole run unchanged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from simrun.argo import label_value
from tests.cluster.scenarios import SMALL, Scene

if TYPE_CHECKING:
    from conftest import Kubectl

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

FLOWS = Path(__file__).parent / "flows"
HOSTILE = "{{=1+1}} {{workflow.name}} $(SIMRUN_RUN) $$(X) `id` '\"\\ \n- é: {{{{x}}}} %s"
COMMAND = ["python3", "-c", "import sys; print(sys.argv[1], end='')", HOSTILE]


def test_text_that_looks_like_a_template_or_a_variable_stays_text_in_names_groups_settings_commands_and_the_environment(
    scene: Scene, kubectl: Kubectl, tmp_path: Path
) -> None:
    (tmp_path / "echo.py").write_text((FLOWS / "echo.py").read_text())
    group = HOSTILE.replace(":", ";")
    flow = tmp_path / "flow.yaml"
    flow.write_text(
        yaml.safe_dump(
            {
                "name": HOSTILE,
                "types": {
                    "echo": {
                        "plugin": "echo.py:echo",
                        "params": {"text": "to be replaced"},
                        "env": {"HOSTILE": HOSTILE},
                        "split": {"workers": 1, "units": {"list": [{"word": HOSTILE}]}},
                        **SMALL,
                    },
                    "bare": {"command": COMMAND, "env": {"HOSTILE": HOSTILE}, **SMALL},
                },
                "tasks": {"echo": {"type": "echo"}, "bare": {"type": "bare"}},
            }
        )
    )
    run = scene.new_run()
    simrun = scene.simrun()

    outcome = simrun.run(flow, run, "--group", group, "--param", f"echo.text={json.dumps(HOSTILE)}")

    assert outcome.code == 0, outcome.err
    record = simrun.record(run)
    assert (record["group"], record["name"]) == (group, HOSTILE)
    (seen,) = simrun.task(run, "echo").rglob("seen.json")
    assert json.loads(seen.read_text()) == {"param": HOSTILE, "unit": HOSTILE, "env": HOSTILE}
    (log,) = (simrun.task(run, "bare") / "logs").iterdir()
    assert HOSTILE in log.read_text()
    metadata = kubectl.get("workflow", record["workflow_name"])["metadata"]
    assert metadata["annotations"]["simrun/group"] == group
    assert metadata["labels"]["simrun/group"] == label_value(group)
