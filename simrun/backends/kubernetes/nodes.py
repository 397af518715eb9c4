"""The nodes of a workflow's status, in the three forms in which Argo keeps them.

Plain in `status.nodes`; compressed in `status.compressedNodes` once the object would be too large for the API server (gzip up to Argo
4.0, zstd or brotli from 4.1 on, so the first bytes decide; brotli has none of its own); or in Argo's own database, of which the object names only the version.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import importlib
import json
import zlib
from collections.abc import Mapping
from typing import Any

from simrun.base.errors import BackendError

Node = Mapping[str, Any]

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"


class NodesUnreadable(BackendError):  # noqa: N818 - reads as what it is
    """Raised when the nodes of a workflow are somewhere, or in a form, that can't be read here; the text says why."""


def nodes_of(status: Mapping[str, Any]) -> dict[str, Node]:
    """Give the nodes of a workflow by their id; none when it has not started."""
    if nodes := status.get("nodes"):
        return dict(nodes)
    if packed := status.get("compressedNodes"):
        return _unpack(packed)
    if version := status.get("offloadNodeStatusVersion"):
        raise NodesUnreadable(f"its nodes are in Argo's database (version {version})")
    return {}


def _unpack(packed: str) -> dict[str, Node]:
    try:
        data = base64.b64decode(packed, validate=True)
        if data.startswith(_GZIP):
            text = gzip.decompress(data)
        elif data.startswith(_ZSTD):
            text = _zstd(data)
        else:
            text = _brotli(data)
        nodes = json.loads(text)
    except (binascii.Error, OSError, EOFError, zlib.error, ValueError) as error:
        raise NodesUnreadable(f"its compressed nodes are damaged: {error}") from error
    if not isinstance(nodes, dict):
        raise NodesUnreadable("its compressed nodes are no JSON object")
    return nodes


def _zstd(data: bytes) -> bytes:
    """Python reads zstd from 3.14 on; before, with the package zstandard."""
    for module in ("compression.zstd", "zstandard"):
        try:
            library = importlib.import_module(module)
        except ImportError:
            continue
        try:
            # zstandard needs streaming for frames that don't name their size
            if module == "zstandard":
                return bytes(library.ZstdDecompressor().decompressobj().decompress(data))
            return bytes(library.decompress(data))
        except (
            Exception
        ) as error:  # both have an error class of their own, and neither is known here
            raise NodesUnreadable(f"its zstd-compressed nodes are damaged: {error}") from error
    raise NodesUnreadable(
        "its nodes are compressed with zstd, which needs Python 3.14 or the package zstandard"
    )


def _brotli(data: bytes) -> bytes:
    """Read what is neither gzip nor zstd: brotli, with one of the packages that can, or nothing that is known."""
    for module in ("brotli", "brotlicffi"):
        try:
            library = importlib.import_module(module)
        except ImportError:
            continue
        try:
            return bytes(library.decompress(data))
        except Exception as error:  # the package's own class
            raise NodesUnreadable(
                f"its nodes are compressed in a form that is neither gzip, zstd nor brotli (starts with {data[:4].hex()})"
            ) from error
    raise NodesUnreadable(
        f"its nodes are compressed in a form that is neither gzip nor zstd (starts with {data[:4].hex()}); brotli needs the"
        " package brotli, or set Argo's compression to gzip or zstd"
    )
