"""Which simrun this is. Looked up once, when it is imported: it is a look at files, which no request should make."""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

VERSION: Final = version("simrun")
