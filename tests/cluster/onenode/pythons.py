"""Layers of the images with Python: the system, the locked packages, and simrun from the working tree."""

from __future__ import annotations

import functools
import shutil
import sys
import tomllib
from pathlib import Path

from onenode import archive, layout, lock
from onenode.archive import Layer
from onenode.layers import file_digest, key, layer
from onenode.shell import attempt, run, step, write

# What an example imports; the harness itself needs nothing but Python
WANTED = {"rebound", "numpy", "matplotlib"}
SITE = Path(f"usr/local/lib/python{layout.VERSIONS['IMAGE_PYTHON']}/dist-packages")
# libstdc++6 is what wheels take from the system; the variant has no apt and needs none
SYSTEM = ("python3", "libstdc++6")
COMMANDS = {"simrun-worker": "worker", "simrun-merge": "merge", "simrun-exec": "exec"}


def _system_folder() -> Path:
    """Return the worker image's file system as a folder: the lowest layer, and the Python that
    compiles the others.
    """
    recipe = (layout.VERSIONS["IMAGE_SUITE"], *SYSTEM, str(layout.POD_UID))
    folder = layout.IMAGES / f"system-{key(*recipe)}"
    if folder.exists():
        return folder
    part = layout.IMAGES / "system.part"
    layout.IMAGES.mkdir(parents=True, exist_ok=True)
    if part.exists():
        shutil.rmtree(part)
    account = f"simrun:x:{layout.POD_UID}:{layout.POD_UID}::/tmp:/usr/sbin/nologin"
    with step("installing the worker image's system"):
        run(
            "mmdebstrap",
            "--variant=essential",
            f"--include={','.join(SYSTEM)}",
            *(
                f"--dpkgopt=path-exclude=/usr/share/{kind}/*"
                for kind in ("doc", "man", "locale", "info")
            ),
            f'--customize-hook=echo "{account}" >>"$1/etc/passwd"',
            layout.VERSIONS["IMAGE_SUITE"],
            part,
            env={"SOURCE_DATE_EPOCH": str(archive.TIME_STAMP), "TMPDIR": str(layout.IMAGES)},
        )
    for old in layout.IMAGES.glob("system-*"):
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    part.rename(folder)
    return folder


def system() -> Layer:
    """Pack Debian with Python, below everything else."""
    folder = _system_folder()
    path = layout.IMAGES / f"{folder.name}.tar"
    return archive.cached(path) or archive.pack(folder, path)


def _compile(tree: Path) -> None:
    """Compile the Python files of a layer with the image's own Python, since its pods cannot write
    beside them.

    Unchecked hashes: a layer has one time stamp for all files, and nobody edits them in place.
    """
    system = _system_folder()
    inside = Path("/tmp") / tree.name  # in the image, not on this machine
    shutil.copytree(tree, system / inside.relative_to("/"), symlinks=True)
    python = f"/usr/bin/python{layout.VERSIONS['IMAGE_PYTHON']}"
    options = (
        "-m",
        "compileall",
        "-q",
        "-s",
        inside,
        "-p",
        "/",
        "--invalidation-mode",
        "unchecked-hash",
    )
    try:
        run("chroot", system, python, *options, inside, env={"PYTHONHASHSEED": "0"})
        shutil.copytree(system / inside.relative_to("/"), tree, symlinks=True, dirs_exist_ok=True)
    finally:
        shutil.rmtree(system / inside.relative_to("/"), ignore_errors=True)


def _pip() -> list[str | Path]:
    """Return a command that runs pip: this Python's own, or one in a virtual environment made for
    it.
    """
    if attempt(sys.executable, "-m", "pip", "--version"):
        return [sys.executable, "-m", "pip"]
    folder = layout.ROOT / "pip"
    if not attempt(folder / "bin/python", "-m", "pip", "--version"):
        run(sys.executable, "-m", "venv", "--clear", folder)
    return [folder / "bin/python", "-m", "pip"]


def packages() -> Layer:
    """Pack what the examples compute with."""
    dev = (layout.CHECKOUT / "requirements/dev.txt").read_text()
    return _wheels("packages", lock.subset(dev, WANTED))


def requirements() -> Layer:
    """Pack what the service needs, in the versions that are locked for everybody."""
    return _wheels("requirements", (layout.CHECKOUT / "requirements/run.txt").read_text())


def _wheels(name: str, locked: str) -> Layer:
    """Pack the wheels of a lock file, as pip chooses them for the image's own Python."""
    version = layout.VERSIONS["IMAGE_PYTHON"]
    machine = {"amd64": "x86_64", "arm64": "aarch64"}[layout.architecture()]
    # glibc 2.36 is Debian 12's; pip takes the first of these that a wheel is tagged with
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in range(36, 16, -1)] + [
        f"manylinux2014_{machine}"
    ]

    def fill(tree: Path) -> None:
        requirements = tree.with_name(f"{tree.name}.txt")
        requirements.write_text(locked)
        try:
            run(
                *_pip(),
                "install",
                *("--quiet", "--no-compile", "--disable-pip-version-check", "--no-warn-conflicts"),
                *("--only-binary", ":all:", "--require-hashes", "-r", requirements),
                *(
                    "--python-version",
                    version,
                    "--implementation",
                    "cp",
                    "--abi",
                    f"cp{version.replace('.', '')}",
                ),
                *(option for name in platforms for option in ("--platform", name)),
                *("--target", tree / SITE),
            )
        finally:
            requirements.unlink()
        shutil.rmtree(tree / SITE / "bin", ignore_errors=True)
        _compile(tree)

    return layer(name, key(locked, str(_system_folder()), *platforms), fill)


@functools.cache
def simrun() -> Layer:
    """Pack simrun as it stands in the working tree, with its commands on PATH.

    Once for all images of a call: one that is edited meanwhile would be another layer, and this one would go.
    """
    origin = layout.CHECKOUT / "simrun"
    files = sorted(p for p in origin.rglob("*") if p.is_file() and p.suffix != ".pyc")
    stamp = key(
        str(_system_folder()), *(f"{p.relative_to(origin)} {file_digest(p)}" for p in files)
    )

    def fill(tree: Path) -> None:
        shutil.copytree(
            origin, tree / SITE / "simrun", ignore=shutil.ignore_patterns("__pycache__")
        )
        for command, role in COMMANDS.items():
            text = f'#!/bin/sh\nexec /usr/bin/python3 -m simrun.worker {role} "$@"\n'
            write(tree / "usr/local/bin" / command, text, mode=0o755)
        _compile(tree)

    return layer("simrun", stamp, fill)


def command() -> Layer:
    """Pack the command `simrun`, and what tells an installed simrun its version."""
    project = tomllib.loads((layout.CHECKOUT / "pyproject.toml").read_text())["project"]
    version = project["version"]

    def fill(tree: Path) -> None:
        text = '#!/bin/sh\nexec /usr/bin/python3 -m simrun "$@"\n'
        write(tree / "usr/local/bin/simrun", text, mode=0o755)
        metadata = f"Metadata-Version: 2.1\nName: simrun\nVersion: {version}\n"
        write(tree / SITE / f"simrun-{version}.dist-info/METADATA", metadata)

    return layer("command", key(version, str(SITE)), fill)
