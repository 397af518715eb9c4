"""Handlers of kopf beside which bench_watch.py measures; runs in a venv of its own, without simrun.

    python kopf_peer.py NAMESPACE event|update

Answers "mark" and "seen" on standard input as main.go does. Update handlers write annotations to the pods, which changes them for all
who watch: so they are measured apart.
"""

import asyncio
import json
import resource
import sys
import time

import kopf

NAMESPACE, WHICH = sys.argv[1:]
PODS = ("", "v1", "pods")
MARKED = {"simrun/run": kopf.PRESENT}
notes: list[dict[str, object]] = []


def note(name: str, message: str | None, at: int) -> None:
    """Note that the handler of a pod began at a time in nanoseconds."""
    if message and message.isdecimal():
        notes.append({"pod": name, "number": int(message), "at": at})


if WHICH == "event":

    @kopf.on.event(*PODS, labels=MARKED)
    async def seen(name: str, status: kopf.Status, **_: object) -> None:
        note(name, status.get("message"), time.time_ns())

else:

    @kopf.on.update(*PODS, labels=MARKED, field="status.message")
    async def updated(name: str, new: str, **_: object) -> None:
        note(name, new, time.time_ns())


@kopf.on.startup()
async def configure(settings: kopf.OperatorSettings, **_: object) -> None:
    """Its ordinary settings; but the Events it would write for each update are no part of the comparison."""
    settings.posting.enabled = False


async def commands() -> None:
    """Answer until standard input ends."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    print('"ready"', flush=True)
    while line := await reader.readline():
        if line.strip() == b"mark":
            used = resource.getrusage(resource.RUSAGE_SELF)
            cpu = used.ru_utime + used.ru_stime
            print(json.dumps({"cpu_s": cpu, "rss_mb": used.ru_maxrss / 1024}), flush=True)
        else:
            print(json.dumps(notes), flush=True)
            notes.clear()


async def main() -> None:
    """Watch until standard input ends."""
    operator = asyncio.ensure_future(kopf.operator(namespaces=[NAMESPACE], standalone=True))
    await commands()
    operator.cancel()


asyncio.run(main())
