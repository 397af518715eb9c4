"""Starting, stopping and judging the whole cluster: the order of things, and nothing else."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Sequence

from onenode import control_plane, daemons, debian, images, keys, layout, node, operators, programs
from onenode.archive import Image
from onenode.shell import ClusterError, exclusive, remove, require_root, say, wait_for, write

# What says which versions run: the processes may be older than versions.env
_STARTED = layout.RUN / "started.json"
_PORTS = {2379: "etcd", 6443: "the API server", 9443: "Kueue", 10250: "the kubelet"}


def _versions() -> dict[str, str]:
    """Return the versions of what runs; helm is only used on the cluster."""
    return {name: version for name, version in layout.VERSIONS.items() if name != "HELM"}


def missing() -> list[str]:
    """Return the processes that should run and do not."""
    return [name for name in daemons.NAMES if not daemons.find(name)]


def trouble() -> str | None:
    """Say in a few words why the cluster cannot be used; None when it is healthy."""
    gone = missing()
    if len(gone) == len(daemons.NAMES):
        return "it is not running"
    if gone:
        return f"not running: {', '.join(gone)}"
    if not _STARTED.exists():
        return "its start was not finished"
    if json.loads(_STARTED.read_text()) != _versions():
        return "it runs other versions than versions.env names"
    if not control_plane.answers():
        return "the API server does not answer"
    if not node.ready():
        return "the node is not ready"
    return None


def _check_ports() -> None:
    """Raise ClusterError when a port is taken by something that is not of this cluster."""
    for port, user in _PORTS.items():
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                raise ClusterError(
                    f"port {port}, which {user} needs, is taken by another program: end that, or set SIMRUN_TEST_KUBECONFIG"
                ) from error


def start(packed: Sequence[Image]) -> None:
    """Start everything on a machine where nothing of the cluster runs."""
    _check_ports()
    layout.RUN.mkdir(parents=True, exist_ok=True)
    keys.make()
    keys.write_kubeconfigs()
    operators.prepare_store()
    control_plane.start_etcd()
    control_plane.start_api()
    node.start_containerd()
    images.deliver(packed)
    control_plane.wait_for_api()
    control_plane.start_controllers()
    node.start_kubelet()
    node.start_proxy()
    operators.define_objects()
    operators.start_argo()
    operators.start_kueue()
    operators.wait_for_kueue()
    operators.apply_objects()
    node.wait_until_ready()
    write(_STARTED, json.dumps(_versions()))


def stop() -> None:
    """Stop what runs of the cluster and forget its state; programs, images and keys stay. Right
    after any crash, too.
    """
    for name in ("kueue", "workflow-controller", "kube-controller-manager", "kube-scheduler"):
        daemons.stop(name)
    node.end_pods()
    for name in ("kube-proxy", "kubelet", "kube-apiserver", "etcd"):
        daemons.stop(name)
    node.clear()
    operators.forget_kueue_certificates()
    remove(layout.RUN)


def up(_argv: Sequence[str]) -> int:
    """Build what is missing and start the cluster, or renew the images and objects of one that
    runs; print KUBECONFIG.
    """
    require_root()
    os.umask(0o022)
    with exclusive():
        debian.install_missing()
        programs.build()
        packed = images.make()
        begun = time.monotonic()
        problem = trouble()
        if problem is None:
            images.deliver(packed)
            operators.apply_objects()
            say("the cluster is running already")
        else:
            if layout.RUN.exists() or len(missing()) < len(daemons.NAMES):
                say(f"clearing what is left of the cluster: {problem}")
                stop()
            start(packed)
            say(f"the cluster started in {time.monotonic() - begun:.1f} s")
    print(layout.KUBECONFIG)
    return 0


def down(_argv: Sequence[str]) -> int:
    """Stop the cluster, in whatever state it is."""
    require_root()
    with exclusive():
        stop()
    say("the cluster is down")
    return 0


def restart(argv: Sequence[str]) -> int:
    """Kill one process of a running cluster, if it is there, and start it again: NAME [VARIABLE=VALUE …].

    NAME is kube-apiserver, kubelet or workflow-controller; only the last takes variables for its environment.
    """
    require_root()
    name, *pairs = argv or ("",)
    environment = dict(pair.split("=", 1) for pair in pairs)
    starts: dict[str, Callable[[], None]] = {
        "kube-apiserver": control_plane.start_api,
        "kubelet": node.start_kubelet,
        "workflow-controller": lambda: operators.start_argo(environment),
    }
    if name not in starts:
        raise ClusterError(f"{name!r} can't be restarted: name one of {', '.join(starts)}")
    daemons.kill(name)
    wait_for(f"the end of {name}", lambda: not daemons.find(name))
    starts[name]()
    wait_for(f"{name}", lambda: daemons.alive(name) and control_plane.answers())
    return 0


def status(_argv: Sequence[str]) -> int:
    """Say whether the cluster is healthy; exit code 1 when it is not."""
    problem = trouble()
    print(
        f"the cluster is healthy: {layout.KUBECONFIG}"
        if problem is None
        else f"no cluster: {problem}"
    )
    return 0 if problem is None else 1


def env(_argv: Sequence[str]) -> int:
    """Print shell lines that put this cluster's kubectl, argo and helm on PATH: eval
    "$(tests/cluster/env)".
    """
    folders = (layout.kubectl().parent, layout.program("argo", "argo").parent, layout.helm().parent)
    print(f"export KUBECONFIG={layout.KUBECONFIG}")
    print(f"export SIMRUN_TEST_STORE={layout.STORE}")
    print(f"export PATH={':'.join(map(str, folders))}:$PATH")
    return 0
