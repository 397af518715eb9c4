"""What tests of every part may ask for. Real mounts are in tests.mounts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from blockbuster import BlockBuster, BlockBusterFunction


@pytest.fixture
def loop_guard() -> Callable[[], AbstractContextManager[None]]:
    """Give a context in which a blocking call that simrun makes on the event loop raises BlockingError.

    A test enters it around what it examines; its own preparations may block.
    """

    @contextmanager
    def guard() -> Iterator[None]:
        watcher = BlockBuster("simrun")
        for name in ("fsync", "open", "replace", "link"):
            watcher.functions[f"os.{name}"] = BlockBusterFunction(
                os, name, scanned_modules="simrun"
            )
        watcher.activate()
        try:
            yield
        finally:
            watcher.deactivate()

    return guard
