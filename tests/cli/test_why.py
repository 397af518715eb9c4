"""The text of `simrun why`."""

from __future__ import annotations

from simrun.cli.why import text_of
from simrun.model.record import RunState, TaskState
from simrun.service.why import RunWhy, TaskWhy, WorkerWhy


def test_each_reason_stands_with_its_workers_and_its_remedy() -> None:
    quota = WorkerWhy(
        workers=tuple(f"sweep-w{n}" for n in range(1, 9)),
        attempt=0,
        text="queue sims: more than its maximum capacity",
        remedy="lower resources",
    )
    image = WorkerWhy(workers=("sweep-w0",), attempt=1, text="ImagePullBackOff: \x1b[31mred")
    sweep = TaskWhy(task="sweep", state=TaskState.QUEUED, text="9 wait", workers=(quota, image))
    plot = TaskWhy(task="plot", state=TaskState.WAITING, text="waits for sweep (queued)")

    text = text_of(
        RunWhy(
            run="r1",
            state=RunState.RUNNING,
            text="workers of sweep wait",
            tasks=(sweep, plot),
            notes=("pods are 200 s old",),
        )
    )

    assert text.splitlines() == [
        "run r1 is running: workers of sweep wait",
        "",
        "sweep, queued: 9 wait",
        "  sweep-w1 and 7 other workers: queue sims: more than its maximum capacity",
        "    -> lower resources",
        "  sweep-w0: ImagePullBackOff: " + text.splitlines()[5].partition("Off: ")[2],
        "",
        "plot, waiting: waits for sweep (queued)",
        "",
        "note: pods are 200 s old",
    ]
    assert "\x1b" not in text


def test_a_run_that_was_cancelled_is_told_so_once() -> None:
    cancelled = RunWhy(run="r1", state=RunState.CANCELLED, text="cancelled", tasks=(), notes=())

    assert text_of(cancelled) == "run r1 cancelled"
