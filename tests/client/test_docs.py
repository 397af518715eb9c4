"""The example of docs/reference/client.md runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal

from simrun.base import ids
from tests.client.served import serving

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "client.md"


def test_the_example_submits_follows_and_downloads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert code is not None
    monkeypatch.chdir(tmp_path)
    Path("sweep.yaml").write_text("tasks: {only: {command: 'true'}}\n")
    run_id = ids.keyed_run_id("default", "june")
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(serving(tmp_path)) as served,
    ):
        out = served.session.store.layout.run(run_id).task("only").out
        example = code[1].replace("https://simrun.example.org", served.url)
        # Its task succeeds as soon as it runs, with a file
        example = example.replace("    for progress in", "    work(run.id)\n    for progress in", 1)

        def work(_run: str) -> None:
            out.mkdir(parents=True, exist_ok=True)
            (out / "table.csv").write_text("1\n")
            portal.start_task_soon(served.succeed, run_id)

        exec(compile(example, str(PAGE), "exec"), {"work": work})

    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("[('only', 0, None)]")
    assert "results/only/table.csv" in lines
    assert (tmp_path / "results/only/table.csv").read_text() == "1\n"
