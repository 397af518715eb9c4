"""The programs of the cluster, built from their Go modules and cached by version.

Each source is built in a Go module of its own, since their dependencies disagree. What the programs
need at run time from their source (object definitions) is copied beside them, so that a start from
the cache needs neither Go nor the network.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from onenode import layout
from onenode.shell import ClusterError, exclusive, run, script, step

OLDEST_GO = (1, 26)


@dataclass(frozen=True)
class Source:
    """A Go module, which programs are built from it, and which of its files are kept beside them."""

    name: str
    module: str
    programs: dict[str, str]
    """Program by the path of its package below the module ("" for the module itself)."""
    flags: str = ""
    """Linker flags; {version} and {minor} stand for this source's version."""
    files: tuple[str, ...] = ()
    """Patterns below the module of files to keep, by their base names, in the folder `manifests`."""
    own_copy: bool = False
    """Build from a copy of the module that `_mend` has repaired."""

    @property
    def version(self) -> str:
        return layout.VERSIONS[self.name.upper()]

    @property
    def folder(self) -> Path:
        return layout.BIN / f"{self.name}-{self.version}"

    def complete(self) -> bool:
        """Tell whether everything of this source is in the cache."""
        wanted = [self.folder / program for program in self.programs.values()]
        return all(p.exists() for p in wanted) and (not self.files or self.manifests().is_dir())

    def manifests(self) -> Path:
        return self.folder / "manifests"


_VERSION = "k8s.io/component-base/version"
KUBERNETES = Source(
    "kubernetes",
    "k8s.io/kubernetes",
    {
        f"/cmd/{name}": name
        for name in (
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler",
            "kube-proxy",
            "kubelet",
            "kubectl",
        )
    },
    # Without these, clients read an empty server version
    flags=f"-X {_VERSION}.gitVersion={{version}} -X {_VERSION}.gitMajor=1 -X {_VERSION}.gitMinor={{minor}}",
)
ETCD = Source("etcd", "go.etcd.io/etcd/server/v3", {"": "etcd"})
KUEUE = Source(
    "kueue",
    "sigs.k8s.io/kueue",
    {"/cmd/kueue": "kueue"},
    files=("config/components/crd/bases/*.yaml", "config/components/webhook/manifests.yaml"),
)
_ARGO = "github.com/argoproj/argo-workflows/v4"
ARGO = Source(
    "argo",
    _ARGO,
    {f"/cmd/{name}": name for name in ("workflow-controller", "argoexec", "argo")},
    flags=f"-X {_ARGO}.version={{version}}",
    files=("manifests/base/crds/minimal/argoproj.io_*.yaml",),
    own_copy=True,
)
_HELM = "helm.sh/helm/v4"
HELM = Source(
    "helm",
    _HELM,
    {"/cmd/helm": "helm"},
    flags=f"-X {_HELM}/internal/version.version={{version}}",
)
SOURCES = (ETCD, KUBERNETES, KUEUE, ARGO, HELM)


def _check_go() -> None:
    remedy = "building the cluster's programs needs Go 1.26 or newer on PATH"
    try:
        words = run("go", "env", "GOVERSION")
    except ClusterError as error:
        raise ClusterError(remedy) from error
    found = re.match(r"go(\d+)\.(\d+)", words)
    if found is None or (int(found[1]), int(found[2])) < OLDEST_GO:
        raise ClusterError(f"{remedy}; found {words.strip()}")


def _staging_replacements(go_mod: str, version: str) -> list[str]:
    """Return the `replace` lines for the modules that Kubernetes requires at v0.0.0 and replaces in
    its own tree.
    """
    names = sorted(set(re.findall(r"^\s+(k8s\.io/[a-z-]+) v0\.0\.0$", go_mod, re.MULTILINE)))
    return [f"replace {name} => {name} {version.replace('v1.', 'v0.', 1)}" for name in names]


def _mend(copy: Path) -> None:
    """Put back into Argo's source what a Go module archive leaves out: a symbolic link and a built
    web page.
    """
    signals = copy / "workflow/executor/osspecific"
    shutil.copyfile(signals / "signal_darwin.go", signals / "signal_linux.go")
    page = copy / "ui/dist/app/index.html"
    page.parent.mkdir(parents=True)
    page.write_text("<html></html>\n")


def _writable_copy(origin: Path, target: Path) -> None:
    shutil.copytree(origin, target, copy_function=shutil.copyfile)
    for folder in (target, *(p for p in target.rglob("*") if p.is_dir())):
        folder.chmod(0o755)


def _build(source: Source) -> None:
    """Build one source in a temporary folder and move the result into the cache when all of it is
    there.
    """
    layout.BIN.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=layout.ROOT, prefix=f"{source.name}.") as scratch:
        work = Path(scratch)
        found = json.loads(
            run("go", "mod", "download", "-json", f"{source.module}@{source.version}", cwd=work)
        )
        lines = [
            "module cluster.test/build",
            "go 1.26.0",
            f"require {source.module} {source.version}",
        ]
        if source.own_copy:
            # The module cache is read-only: folders of a copy made with their modes could not be
            # filled
            _writable_copy(Path(found["Dir"]), work / "source")
            _mend(work / "source")
            lines.append(f"replace {source.module} => {work / 'source'}")
        lines += _staging_replacements(Path(found["GoMod"]).read_text(), source.version)
        (work / "go.mod").write_text("\n".join(lines) + "\n")
        part = work / "result"
        part.mkdir()
        _compile(source, work, part)
        kept = [
            path for pattern in source.files for path in sorted(Path(found["Dir"]).glob(pattern))
        ]
        for path in kept:
            (part / "manifests").mkdir(exist_ok=True)
            shutil.copyfile(path, part / "manifests" / path.name)
        if source.folder.exists():
            shutil.rmtree(source.folder)
        part.rename(source.folder)


def _compile(source: Source, work: Path, out: Path) -> None:
    flags = source.flags.format(version=source.version, minor=source.version.split(".")[1])
    command = ("go", "build", "-mod=mod", "-trimpath", "-ldflags", f"-s -w {flags}".strip())
    for package, name in source.programs.items():
        run(
            *command,
            "-o",
            out / name,
            f"{source.module}{package}",
            cwd=work,
            env={"CGO_ENABLED": "0", "GOWORK": "off"},
        )


def build(names: Sequence[str] = ()) -> None:
    """Build what is missing of the named sources, or of all of them."""
    unknown = set(names) - {source.name for source in SOURCES}
    if unknown:
        raise ClusterError(
            f"no such program: {', '.join(sorted(unknown))} (there are {', '.join(s.name for s in SOURCES)})"
        )
    missing = [s for s in SOURCES if not s.complete() and (not names or s.name in names)]
    if missing:
        _check_go()
    for source in missing:
        with step(f"building {source.name} {source.version}"):
            _build(source)


def main(argv: Sequence[str]) -> int:
    """Build the named sources and print where the programs are."""
    with exclusive():
        build(argv)
    print(layout.BIN)
    return 0


if __name__ == "__main__":
    script(main)
