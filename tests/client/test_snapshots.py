"""Snapshots from a program: read, looked up, and sent only where the server has not got them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from simrun.base.errors import Conflict, InvalidInput, NotFound
from simrun.client import AsyncClient, Client
from simrun.store.snapshots import SnapshotStore
from simrun.store.verification import verify
from tests.client.served import Served, serving
from tests.service.world import submission


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path) as found:
        yield found


@pytest.fixture
def mesh(tmp_path: Path) -> Path:
    top = tmp_path / "mesh"
    (top / ("long" * 40) / "empty").mkdir(parents=True)
    (top / ("long" * 40) / ("é" * 100)).write_bytes(os.urandom(2_500_000))
    (top / "run").write_text("#!/bin/sh\n")
    (top / "run").chmod(0o755)
    (top / "nothing").write_bytes(b"")
    return top


async def test_a_directory_arrives_as_it_is_and_is_sent_once(served: Served, mesh: Path) -> None:
    read: list[int] = []
    async with AsyncClient(served.url) as client:
        made = await client.create_snapshot(mesh, group="g", name="mesh", step=read.append)
        assert sum(read) == 2 * made.bytes  # once to know its digest, once to send it
        read.clear()
        assert await client.create_snapshot(mesh, group="g", step=read.append) == made
        assert sum(read) == made.bytes
        assert await client.snapshot("mesh") == made
        assert [item async for item in client.all_snapshots()] == [made]
        assert (await client.snapshots(group="other")).snapshots == ()
        paths = [entry async for entry in client.snapshot_files("mesh")]
        store = SnapshotStore(served.session.store.layout)
        assert paths == list(store.entries("mesh"))
        assert any(entry.executable for entry in paths)
        assert verify(store, "mesh") == []
        checked = await client.verify_snapshot("mesh")
        assert (checked.whole, checked.digest, checked.differences) == (True, made.digest, ())
        await client.delete_snapshot("mesh")
        with pytest.raises(NotFound, match="no snapshot 'mesh'"):
            await client.snapshot("mesh")


async def test_what_cannot_be_sent_is_told_as_it_would_be_here(
    served: Served, mesh: Path, tmp_path: Path
) -> None:
    async with AsyncClient(served.url) as client:
        await client.create_snapshot(mesh, name="mesh")
        (mesh / "more").write_text("x")
        with pytest.raises(Conflict, match="other content"):
            await client.create_snapshot(mesh, name="mesh")
        with pytest.raises(InvalidInput, match="name"):
            await client.create_snapshot(mesh, name="../mesh")
        with pytest.raises(NotFound):
            await client.create_snapshot(tmp_path / "missing")
        os.mkfifo(mesh / "fifo")
        with pytest.raises(InvalidInput, match="is a FIFO"):
            await client.create_snapshot(mesh)


async def test_a_file_that_changes_between_reading_and_sending_is_told(
    served: Served, mesh: Path
) -> None:
    changed = False

    def change(_count: int) -> None:
        nonlocal changed
        if not changed:
            changed = True
            (mesh / "run").write_text("longer than it was\n")

    async with AsyncClient(served.url, tries=1) as client:
        with pytest.raises(InvalidInput, match="changed while it was read"):
            await client.create_snapshot(mesh, step=change)
    assert SnapshotStore(served.session.store.layout).all() == []


async def test_local_paths_of_a_submission_become_snapshots_of_its_group(
    served: Served, mesh: Path, tmp_path: Path
) -> None:
    (tmp_path / "one.csv").write_text("a\n")
    kind = {"command": ["true"], "inputs": ["data"]}
    texts = ("snapshot:./mesh", "snapshot:./one.csv", "snapshot:mesh-2")
    tasks = {f"t{n}": {"type": "t", "inputs": {"data": text}} for n, text in enumerate(texts)}
    what = submission(tasks, {"t": kind}, group="g")
    async with AsyncClient(served.url) as client:
        sent = await client.with_local_data(what, tmp_path)
        again = await client.with_local_data(what, tmp_path)
        found = [item async for item in client.all_snapshots(group="g")]
    assert sent == again
    names = {item.name.rpartition("-")[0]: item.name for item in found}
    assert [task.inputs["data"] for task in sent.workflow.tasks.values()] == [
        f"snapshot:{names['mesh']}",
        f"snapshot:{names['one.csv']}/one.csv",
        "snapshot:mesh-2",
    ]


async def test_without_a_loop(served: Served, mesh: Path) -> None:
    def use() -> str:
        with Client(served.url) as client:
            made = client.create_snapshot(mesh)
            assert list(client.all_snapshots()) == [made]
            assert len(list(client.snapshot_files(made.name))) == 4
            client.delete_snapshot(made.name)
            return made.name

    assert (await asyncio.get_running_loop().run_in_executor(None, use)).startswith("mesh-")
