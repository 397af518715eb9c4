"""What no run waits for, done once after a start: old runs are listed, halves that dead processes left are taken away."""

from __future__ import annotations

import logging
from pathlib import Path

from simrun.aio.threads import Pool
from simrun.service.index import IndexedRunStore
from simrun.store.files import remove_tree
from simrun.store.runs import RunStore
from simrun.store.snapshots import SnapshotStore
from simrun.store.sweep import sweep

log = logging.getLogger(__name__)

_SWEPT_AT_ONCE = 50


async def keep_house(store: RunStore, pool: Pool, left: list[Path]) -> None:
    """Do once what no run waits for: list old runs, take away what dead processes left half-written."""
    try:
        if isinstance(store, IndexedRunStore):
            count = await pool.run(store.reindex, everything=True)
            log.info("indexed %d runs", count)
        live = await pool.run(store.live_ids)
        for start in range(0, max(1, len(live)), _SWEPT_AT_ONCE):
            some = live[start : start + _SWEPT_AT_ONCE]
            await pool.run(sweep, store.layout, some, top=start == 0)
        for path in left:
            await pool.run(remove_tree, path)
        await pool.run(SnapshotStore(store.layout).sweep)
    except OSError as error:
        log.warning("not all of the store was looked through, the next start will: %s", error)
