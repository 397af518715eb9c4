"""Container images without a container engine: layers packed from folders, and archives that
containerd imports.

An image is a list of layers, each an uncompressed tar known by its digest. The archive follows the
OCI image layout, so that it may leave out the layers containerd has already: renewing one small
layer of a large image takes a second. Packing is deterministic (sorted names, one time stamp, root
as owner), so an unchanged folder is an unchanged image.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import tarfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onenode import layout

# 2024-01-01: any fixed time will do, and zip files cannot be older than 1980
TIME_STAMP = 1704067200

_MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
_CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
_LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"


@dataclass(frozen=True)
class Layer:
    """One layer in the cache: its tar file, digest and size in bytes."""

    path: Path
    digest: str
    size: int


@dataclass(frozen=True)
class Image:
    """An image by its name; `manifest` and `config` are the encoded documents, whose digests name
    them.
    """

    name: str
    manifest: bytes
    config: bytes
    layers: tuple[Layer, ...]

    @property
    def digest(self) -> str:
        return digest_of(self.manifest)


def digest_of(data: bytes) -> str:
    """Return the digest of a document as images name it."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _member(tar: tarfile.TarFile, path: Path, name: str) -> tarfile.TarInfo | None:
    """Describe one file of a layer; None for what a layer does not carry (device nodes, sockets)."""
    info = tar.gettarinfo(path, arcname=name)
    if info is None or not (info.isreg() or info.isdir() or info.issym() or info.islnk()):
        return None
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mtime = TIME_STAMP
    # Pods run as a user who owns nothing in the image; no program in it may raise its rights either
    readable = 0o555 if info.isdir() or info.mode & stat.S_IXUSR else 0o444
    info.mode = (info.mode & 0o1777) | readable
    return info


def _walk(tree: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(tree):
        folders.sort()
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        yield Path(folder)
        yield from (Path(folder) / name for name in sorted([*files, *links]))


def pack(tree: Path, path: Path) -> Layer:
    """Pack a folder as a layer at `path`, with its digest in a file beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    with tarfile.open(part, "w", format=tarfile.GNU_FORMAT) as tar:
        for found in _walk(tree):
            relative = found.relative_to(tree)
            info = _member(tar, found, f"./{relative}" if relative.parts else ".")
            if info is None:
                continue
            if info.isreg():
                with found.open("rb") as data:
                    tar.addfile(info, data)
            else:
                tar.addfile(info)
    with part.open("rb") as data:
        digest = f"sha256:{hashlib.file_digest(data, 'sha256').hexdigest()}"
    part.replace(path)
    note = path.with_name(f"{path.name}.digest.part")
    note.write_text(digest)
    note.replace(path.with_name(f"{path.name}.digest"))
    return Layer(path, digest, path.stat().st_size)


def cached(path: Path) -> Layer | None:
    """Return the layer that `pack` left at `path`, or None. The digest is written last, so it
    vouches for the tar.
    """
    note = path.with_name(f"{path.name}.digest")
    if not (note.exists() and path.exists()):
        return None
    return Layer(path, note.read_text(), path.stat().st_size)


def image(
    name: str,
    layers: Sequence[Layer],
    entrypoint: Sequence[str],
    env: Sequence[str] = (),
    user: int | None = None,
) -> Image:
    """Describe an image of `layers`, lowest first. `env` holds NAME=value lines besides PATH; `user`
    is whom its programs run as, None for root.
    """
    path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    settings: dict[str, Any] = {
        "Entrypoint": list(entrypoint),
        "WorkingDir": "/",
        "Env": [path, *env],
    }
    if user is not None:
        settings["User"] = f"{user}:{user}"
    config = _encode(
        {
            "architecture": layout.architecture(),
            "os": "linux",
            "config": settings,
            "rootfs": {"type": "layers", "diff_ids": [layer.digest for layer in layers]},
            "history": [{"created_by": "simrun test cluster"} for _ in layers],
        }
    )
    manifest = _encode(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST_TYPE,
            "config": _descriptor(_CONFIG_TYPE, digest_of(config), len(config)),
            "layers": [_descriptor(_LAYER_TYPE, layer.digest, layer.size) for layer in layers],
        }
    )
    return Image(name, manifest, config, tuple(layers))


def _encode(document: dict[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True).encode()


def _descriptor(kind: str, digest: str, size: int) -> dict[str, Any]:
    return {"mediaType": kind, "digest": digest, "size": size}


def export(image: Image, out: Path, without: Collection[str] = ()) -> None:
    """Write `image` as an archive that `ctr images import` takes, leaving out the layers whose
    digests are in `without`.
    """
    index = {
        "schemaVersion": 2,
        "manifests": [
            {
                **_descriptor(_MANIFEST_TYPE, image.digest, len(image.manifest)),
                "annotations": {"io.containerd.image.name": image.name},
                "platform": {"architecture": layout.architecture(), "os": "linux"},
            }
        ],
    }
    with tarfile.open(out, "w", format=tarfile.GNU_FORMAT) as tar:
        _add(tar, "oci-layout", _encode({"imageLayoutVersion": "1.0.0"}))
        _add(tar, "index.json", _encode(index))
        _add(tar, _blob(image.digest), image.manifest)
        _add(tar, _blob(digest_of(image.config)), image.config)
        # A layer may stand in an image twice, a blob in an archive only once
        for layer in {layer.digest: layer for layer in image.layers}.values():
            if layer.digest not in without:
                tar.add(layer.path, arcname=_blob(layer.digest))


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))
