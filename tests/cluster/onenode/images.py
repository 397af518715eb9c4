"""The images of the test cluster, and their way into containerd.

registry.test/pause, busybox and argoexec serve the node and Argo; registry.test/simrun-worker is
what the pods of runs use: Debian's python3 with three layers: the system, the locked scientific
packages, and simrun from the working tree; registry.test/simrun is the service, with the packages
that it needs instead. Only the layer with simrun changes while one works on it, and only changed
layers are copied into containerd.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

from onenode import archive, layout, lock
from onenode.archive import Image, Layer
from onenode.daemons import ctr, find
from onenode.shell import ClusterError, attempt, exclusive, require_root, run, script, step, write

# What an example imports; the harness itself needs nothing but Python
WANTED = {"rebound", "numpy", "matplotlib"}
SITE = Path(f"usr/local/lib/python{layout.VERSIONS['IMAGE_PYTHON']}/dist-packages")
APPLETS = ("sh", "sleep", "echo", "cat", "ls", "true", "false", "dd", "env")
# libstdc++6 is what wheels take from the system; the variant has no apt and needs none
SYSTEM = ("python3", "libstdc++6")
COMMANDS = {"simrun-worker": "worker", "simrun-merge": "merge", "simrun-exec": "exec"}


def _key(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def _layer(name: str, key: str, fill: Callable[[Path], None]) -> Layer:
    """Return the cached layer of that key, or `fill` a folder and pack it; older layers of that
    name go.
    """
    path = layout.IMAGES / f"{name}-{key}.tar"
    found = archive.cached(path)
    if found:
        return found
    layout.IMAGES.mkdir(parents=True, exist_ok=True)
    with (
        step(f"packing the layer {name}"),
        tempfile.TemporaryDirectory(dir=layout.IMAGES, prefix=f"{name}.") as tree,
    ):
        Path(tree).chmod(0o755)
        fill(Path(tree))
        packed = archive.pack(Path(tree), path)
    for old in layout.IMAGES.glob(f"{name}-*.tar*"):
        if not old.name.startswith(path.name):
            old.unlink()
    return packed


# --- the small images


def _busybox() -> Layer:
    def fill(tree: Path) -> None:
        for folder in ("bin", "dev", "etc", "proc", "sys"):
            (tree / folder).mkdir()
        (tree / "tmp").mkdir()
        (tree / "tmp").chmod(0o1777)
        shutil.copy("/bin/busybox", tree / "bin/busybox")
        for applet in APPLETS:
            (tree / "bin" / applet).symlink_to("busybox")

    return _layer("busybox", _key(_file_digest(Path("/bin/busybox")), *APPLETS), fill)


def _argoexec() -> Layer:
    program = layout.program("argo", "argoexec")

    def fill(tree: Path) -> None:
        (tree / "bin").mkdir()
        shutil.copy(program, tree / "bin/argoexec")

    return _layer("argoexec", _key(_file_digest(program)), fill)


def _file_digest(path: Path) -> str:
    with path.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


# --- the worker image


def _system_folder() -> Path:
    """Return the worker image's file system as a folder: the lowest layer, and the Python that
    compiles the others.
    """
    recipe = (layout.VERSIONS["IMAGE_SUITE"], *SYSTEM, str(layout.POD_UID))
    folder = layout.IMAGES / f"system-{_key(*recipe)}"
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


def _system() -> Layer:
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


def _packages() -> Layer:
    """Pack what the examples compute with."""
    dev = (layout.CHECKOUT / "requirements/dev.txt").read_text()
    return _wheels("packages", lock.subset(dev, WANTED))


def _requirements() -> Layer:
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

    return _layer(name, _key(locked, str(_system_folder()), *platforms), fill)


def _simrun() -> Layer:
    """Pack simrun as it stands in the working tree, with its commands on PATH."""
    origin = layout.CHECKOUT / "simrun"
    files = sorted(p for p in origin.rglob("*") if p.is_file() and p.suffix != ".pyc")
    stamp = _key(
        str(_system_folder()), *(f"{p.relative_to(origin)} {_file_digest(p)}" for p in files)
    )

    def fill(tree: Path) -> None:
        shutil.copytree(
            origin, tree / SITE / "simrun", ignore=shutil.ignore_patterns("__pycache__")
        )
        for command, role in COMMANDS.items():
            text = f'#!/bin/sh\nexec /usr/bin/python3 -m simrun.worker {role} "$@"\n'
            write(tree / "usr/local/bin" / command, text, mode=0o755)
        _compile(tree)

    return _layer("simrun", stamp, fill)


def _command() -> Layer:
    """Pack the command `simrun`, and what tells an installed simrun its version."""
    project = tomllib.loads((layout.CHECKOUT / "pyproject.toml").read_text())["project"]
    version = project["version"]

    def fill(tree: Path) -> None:
        text = '#!/bin/sh\nexec /usr/bin/python3 -m simrun "$@"\n'
        write(tree / "usr/local/bin/simrun", text, mode=0o755)
        metadata = f"Metadata-Version: 2.1\nName: simrun\nVersion: {version}\n"
        write(tree / SITE / f"simrun-{version}.dist-info/METADATA", metadata)

    return _layer("command", _key(version, str(SITE)), fill)


# --- all of them

IMAGES: dict[str, Callable[[], Image]] = {
    "pause": lambda: archive.image(
        "registry.test/pause:1", [_busybox()], ["/bin/busybox", "sleep", "2147483647"]
    ),
    "busybox": lambda: archive.image("registry.test/busybox:1", [_busybox()], ["/bin/sh"]),
    "argoexec": lambda: archive.image(
        "registry.test/argoexec:1", [_busybox(), _argoexec()], ["/bin/argoexec"]
    ),
    "worker": lambda: archive.image(
        layout.WORKER_IMAGE,
        [_system(), _packages(), _simrun()],
        ["/usr/bin/python3"],
        # The pods' user has no home; what keeps a cache there must find a place it may write to
        ["HOME=/tmp", "LANG=C.UTF-8"],
    ),
    "simrun": lambda: archive.image(
        layout.SERVICE_IMAGE,
        [_system(), _requirements(), _simrun(), _command()],
        ["/usr/local/bin/simrun"],
        ["HOME=/tmp", "LANG=C.UTF-8"],
        user=layout.POD_UID,
    ),
}


def make(names: Sequence[str] = ()) -> list[Image]:
    """Make the named images, or all, from cached layers where there are any."""
    unknown = set(names) - IMAGES.keys()
    if unknown:
        raise ClusterError(
            f"no such image: {', '.join(sorted(unknown))} (there are {', '.join(IMAGES)})"
        )
    return [IMAGES[name]() for name in names or IMAGES]


def deliver(images: Sequence[Image]) -> None:
    """Import into the running containerd the images it does not have in this very form."""
    lines = (line.split() for line in ctr("images", "ls").splitlines()[1:])
    there = {words[0]: words[2] for words in lines}
    for image in images:
        if there.get(image.name) == image.digest:
            continue
        with step(f"importing {image.name}"):
            _import(image)


def _import(image: Image) -> None:
    """Import with the layers that are missing; with all of them when containerd collected one in
    between.
    """
    stored = set(ctr("content", "ls", "-q").split())
    with tempfile.TemporaryDirectory(dir=layout.IMAGES) as folder:
        path = Path(folder) / "image.tar"
        try:
            archive.export(image, path, without=stored)
            ctr("images", "import", str(path))
        except ClusterError:
            archive.export(image, path)
            ctr("images", "import", str(path))


def main(argv: Sequence[str]) -> int:
    """Make the named images and import them when the cluster runs; print their names."""
    require_root()
    os.umask(0o022)
    with exclusive():
        images = make(argv)
        if find("containerd"):
            deliver(images)
    for image in images:
        print(image.name)
    return 0


if __name__ == "__main__":
    script(main)
