"""The zygote: a small process that forks supervisors on request.

A fork of the service would hand a copy of its memory, its locks and its descriptors to a process that lives for hours, and a
fresh interpreter per attempt costs 30 ms. So one process is started early, with nothing of the service but a socket; it
imports what a supervisor needs and forks from there. Supervisors are its children as long as it lives, and are reaped
by the kernel; when the socket ends it ends too, and they live on under init.

Frames on the socket, both ways: four bytes of length, big-endian, then JSON. To the zygote: an order. From it, once at the
start, {"ready": pid}; then for each order {"uid", "pid", "start"} or {"uid", "error"}.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import struct
import sys
from pathlib import Path
from typing import Any, NoReturn

from simrun.backends.local import groups, processes, records, supervisor
from simrun.backends.local.records import Order

HEADER = struct.Struct(">I")


def frame(value: Any) -> bytes:
    """Give a message as it goes over the socket."""
    data = json.dumps(value, separators=(",", ":")).encode()
    return HEADER.pack(len(data)) + data


def serve(connection: socket.socket) -> None:
    """Fork a supervisor for each order until the other side is gone."""
    # Supervisors take these one by one; blocked here already, none is lost between fork and their first look
    signal.pthread_sigmask(signal.SIG_BLOCK, supervisor.SIGNALS)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    _warm_up()
    gc.freeze()  # what is there is shared with every supervisor; a collection would copy it
    connection.sendall(frame({"ready": os.getpid()}))
    stream = connection.makefile("rb")
    while True:
        header = stream.read(HEADER.size)
        if len(header) < HEADER.size:
            return
        (size,) = HEADER.unpack(header)
        data = stream.read(size)
        if len(data) < size:
            return
        connection.sendall(frame(_answer(connection, json.loads(data))))


def _warm_up() -> None:
    """Find out once what every supervisor would ask for."""
    processes.warm_up()
    try:
        groups.home()
    except OSError:
        pass  # then there is no cgroup to leave and come back from


def _answer(connection: socket.socket, message: dict[str, Any]) -> dict[str, Any]:
    uid = message.get("uid")
    try:
        order = records.from_json(Order, message)
        pid = os.fork()
    except (OSError, TypeError) as error:
        return {"uid": uid, "error": str(error)}
    if pid == 0:
        _in_supervisor(connection, order)
    return {"uid": uid, "pid": pid, "start": processes.start_time(pid)}


def _in_supervisor(connection: socket.socket, order: Order) -> NoReturn:
    try:
        os.close(connection.fileno())
    finally:
        supervisor.supervise(order)


def main() -> None:
    """Take the socket as descriptor 0, where the engine put it, and leave nothing there but /dev/null."""
    descriptor = os.dup(0)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.close(null)
    os.chdir("/")
    processes.name_process("simrun-zygote")
    with socket.socket(fileno=descriptor) as connection:
        try:
            serve(connection)
        except (BrokenPipeError, ConnectionResetError):
            sys.exit(0)  # the engine is gone: the same as an orderly end


def command_line() -> list[str]:
    """Give the command of a zygote.

    Neither the environment nor the site packages of this interpreter matter to it (-I -S), which halves its memory and so the
    price of each fork; simrun is found where this process found it.
    """
    top = str(Path(__file__).parents[3])
    boot = (
        "import sys; sys.path.append(sys.argv[1]); "
        "from simrun.backends.local import zygote; zygote.main()"
    )
    return [sys.executable, "-I", "-S", "-c", boot, top]
