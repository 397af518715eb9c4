"""Memory of processes that the kernel could not take back, as /proc tells it. Standard library only."""

from __future__ import annotations

from collections.abc import Iterable

_STATUS = ("RssAnon:", "RssShmem:", "VmSwap:")
_ROLLUP = ("Pss_Anon:", "Pss_Shmem:", "SwapPss:")


def upper_bound(pids: Iterable[int]) -> int:
    """Give at most what processes hold that the kernel cannot drop, in bytes; shared pages count for each of them."""
    return sum(_sum_fields(f"/proc/{pid}/status", _STATUS) or 0 for pid in pids)


def proportional(pids: Iterable[int]) -> int:
    """Give what processes hold that the kernel cannot drop, in bytes; of shared pages each counts its share."""
    total = 0
    for pid in pids:
        exact = _sum_fields(f"/proc/{pid}/smaps_rollup", _ROLLUP)
        if exact is None:  # somebody else's process
            exact = _sum_fields(f"/proc/{pid}/status", _STATUS)
        total += exact or 0
    return total


def _sum_fields(path: str, names: tuple[str, ...]) -> int | None:
    """Add lines of the form `Name:  123 kB`; None when the file can't be read."""
    total = 0
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith(names):
                    total += int(line.split()[1]) * 1024
    except OSError:
        return None
    return total
