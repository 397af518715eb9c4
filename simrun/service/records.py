"""Writing the record of a run, with the evidence it follows from: one hop into the file threads.

A writer says which record its own is made from, and what is on disk is compared with that. So a record that was remembered and not read
does no harm: what was made from an old one is not written.
"""

from __future__ import annotations

from collections.abc import Callable

from simrun.aio.threads import Pool
from simrun.base.errors import NotFound
from simrun.base.term import Term, check
from simrun.model.record import RunRecord
from simrun.service.effects import Effects, FileWork
from simrun.service.tally import Tally
from simrun.store.runs import RunStore


class Records:
    """Writes records for as long as the term of this process lasts, and tells who wants to know."""

    def __init__(
        self,
        store: RunStore,
        effects: Effects,
        pool: Pool,
        term: Term,
        on_change: Callable[[RunRecord], None] | None,
        *,
        tally: Tally,
    ) -> None:
        self._store, self._effects, self._pool = store, effects, pool
        self._term, self._on_change = term, on_change
        self._tally = tally

    async def write(
        self, before: RunRecord, after: RunRecord, work: FileWork | None = None
    ) -> RunRecord | None:
        """Write `after` when the record on disk is `before`; what was written, None when it is not. Raises NotLeading.

        Of the evidence in `work` the last words are written before, and the rest after it, all in one hop.
        """
        written, failure = await self._pool.run(self._write, before, after, work)
        if written is None:
            return None
        self._tally.wrote(before, written)
        if self._on_change is not None:
            self._on_change(written)
        if failure is not None:
            raise failure  # the record stands, and what is not kept yet will be with the next look
        return written

    async def unchanged(self, record: RunRecord, work: FileWork | None) -> bool:
        """Whether a record that gets no other is the one on disk, or its run is gone; evidence is kept if so."""
        return await self._pool.run(self._unchanged, record, work)

    def _write(
        self, before: RunRecord, after: RunRecord, work: FileWork | None
    ) -> tuple[RunRecord | None, OSError | None]:
        """Write in a thread, with the epoch of the term; the term is looked at here, at the last moment."""
        if self._term.epoch is not None:
            after = after.changed(epoch=self._term.epoch)
        check(self._term, f"the record of run {before.id}")
        first, later = work.split() if work is not None else (None, None)
        if first is not None:
            self._effects.write(first)
        written = self._store.write_if_unchanged(before, after)
        if written is not None and later is not None:
            try:
                self._effects.write(later)
            except OSError as error:
                return written, error
        return written, None

    def _unchanged(self, record: RunRecord, work: FileWork | None) -> bool:
        try:
            now = self._store.read(record.id)
        except NotFound:
            return True  # nothing is left to be brought up to date
        if now is not record and now != record:
            return False
        if work is not None:
            self._effects.write(work)
        return True
