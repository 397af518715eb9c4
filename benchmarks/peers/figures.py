"""Figures from many values."""

from __future__ import annotations


def spread(values: list[float]) -> dict[str, float]:
    """Give p50, p99 and the highest, rounded; of no values, nothing."""
    if not values:
        return {}
    ordered = sorted(values)
    return {
        "p50": round(ordered[len(ordered) // 2], 2),
        "p99": round(ordered[int(len(ordered) * 0.99)], 2),
        "max": round(ordered[-1], 2),
    }
