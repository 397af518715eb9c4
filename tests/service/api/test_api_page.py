"""docs/reference/api.md: every operation, as the code has it. SIMRUN_GOLDEN=write writes its tables anew."""

from __future__ import annotations

import inspect
import os
from pathlib import Path

from simrun.service.api.app import GROUPS
from simrun.service.api.routing import Operation

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "api.md"
BEGIN, END = "<!-- operations -->", "<!-- end of operations -->"
OPERATIONS = [operation for group in GROUPS for operation in group.all]


def row(operation: Operation) -> str:
    summary = inspect.cleandoc(operation.text).split("\n")[0].replace("|", "\\|")
    return (
        f"| {operation.method} | `{operation.template}` | {operation.scope or 'open'} | {summary} |"
    )


def tables() -> str:
    tags = list(dict.fromkeys(operation.tag for operation in OPERATIONS))
    parts = []
    for tag in tags:
        rows = [row(operation) for operation in OPERATIONS if operation.tag == tag]
        heads = "| method | path | scope | what it does |\n|---|---|---|---|\n"
        parts.append(f"### {tag}\n\n{heads}" + "\n".join(rows))
    return "\n\n".join(parts)


def test_the_page_lists_every_operation_as_it_is() -> None:
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    wanted = f"{before}{BEGIN}\n\n{tables()}\n\n{END}{after}"
    if os.environ.get("SIMRUN_GOLDEN") == "write":
        PAGE.write_text(wanted)
    assert page == wanted


def test_every_operation_has_another_method_or_path() -> None:
    seen = [(operation.method, operation.path) for operation in OPERATIONS]
    assert len(seen) == len(set(seen))
