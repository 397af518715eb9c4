"""Random seeds of units: a keyed permutation of the index, so that no two units of a task can ever share a seed.

A hash of the index would give equal seeds by chance once a task has many units (at 31 bits: one pair among 60,000),
and base + i gives neighbouring seeds, which some generators turn into correlated streams and which overlap between tasks.
The permutation is a Feistel network whose rounds are keyed hashes. Its two parts may differ in width by a bit, so it
permutes 63 and 31 bits as they are; numbers outside the range of seeds are permuted again until they are inside (cycle
walking), which keeps it a permutation of that range.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Literal

SEED_BITS = 63
SEED31_BITS = 31
_ROUNDS = 6


class Permutation:
    """A keyed permutation of 1 … 2^bits - 2, `bits` at most 64.

    Zero is left out since to some simulators it means "take the clock", and the highest number since Lehmer generators
    don't take it.
    """

    def __init__(self, key: bytes, bits: int) -> None:
        self.size = 2**bits - 2
        self._high_bits = bits // 2
        self._low_bits = bits - self._high_bits
        self._rounds = [
            hashlib.blake2b(bytes([bits, number]), key=key, digest_size=8, person=b"simrun-seed")
            for number in range(_ROUNDS)
        ]

    def __call__(self, index: int) -> int:
        """Give the number at `index`, which counts from 0; ValueError outside 0 … size - 1."""
        if not 0 <= index < self.size:
            raise ValueError(f"there are {self.size} seeds; there is none at {index}")
        value = self._permute(index + 1)
        while not 1 <= value <= self.size:
            value = self._permute(value)
        return value

    def _permute(self, value: int) -> int:
        """Permute 0 … 2^bits - 1: the two parts are changed in turn, each by a function of the other."""
        low_mask, high_mask = (1 << self._low_bits) - 1, (1 << self._high_bits) - 1
        high, low = value >> self._low_bits, value & low_mask
        for number in range(0, _ROUNDS, 2):
            high ^= self._round(number, low) & high_mask
            low ^= self._round(number + 1, high) & low_mask
        return high << self._low_bits | low

    def _round(self, number: int, part: int) -> int:
        state = self._rounds[number].copy()
        state.update(part.to_bytes(8, "big"))
        return int.from_bytes(state.digest(), "big")


class Seeds:
    """The seeds of one task, whose key is the base seed and the task's id."""

    def __init__(self, base: int, task: str) -> None:
        text = f"{base}\n{task}".encode()
        key = hashlib.blake2b(text, digest_size=32, person=b"simrun-key").digest()
        self._wide, self._narrow = Permutation(key, SEED_BITS), Permutation(key, SEED31_BITS)

    def at(self, index: int) -> tuple[int, int]:
        """Give (seed, seed31) at an index, which counts from 0."""
        return self._wide(index), self._narrow(index)


def seeds(
    base: int,
    task: str,
    n: int,
    *,
    across: Literal["units", "replicates"] = "units",
    replicates: int = 1,
) -> Iterator[tuple[int, int]]:
    """Give (seed, seed31) of n units in order; those of unit i depend on base, task and i only, never on n.

    seed is in 1 … 2^63 - 2, seed31 in 1 … 2^31 - 2. `across="replicates"`: they depend on i modulo `replicates` instead.
    """
    of_task = Seeds(base, task)
    for i in range(n):
        yield of_task.at(i % replicates if across == "replicates" else i)
