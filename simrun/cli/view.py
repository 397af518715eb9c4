"""What is shown of a run while it runs, as text: pure, so that every form of it can be tested without a terminal.

A split task is one line, however many units it has: `sweep  14/20, running 2, retried 1`. When a run has more tasks than a screen has lines,
those that need attention keep their lines and the others are counted by state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from simrun.cli.formatting import clean, cut, cut_middle, duration, pad, plural, width_of

MOST_LINES = 30
"""Lines for tasks; more are folded."""
_NAME_SHARE = 0.4
"""Of the width, for names of tasks."""

_URGENT = ("failed", "retrying", "preempted", "running")
"""States whose tasks keep a line of their own in a large run, the most urgent first."""
_LIVE = frozenset({"running", "retrying"})
_FOLD_ORDER = (*_URGENT, "queued", "waiting", "done", "skipped")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskView:
    """One task. done, total, failed count units of a split task; `total` is None for others, and while nobody knows it.

    `running` counts workers, `retried` attempts beyond each worker's first, `seconds` are those since its first start.
    """

    id: str
    state: str
    split: bool = False
    done: int = 0
    total: int | None = None
    running: int = 0
    retried: int = 0
    failed: int = 0
    message: str = ""
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """A run at one moment."""

    run: str
    state: str
    tasks: tuple[TaskView, ...]
    name: str = ""
    message: str = ""
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the view, and the state that gives it its colour where there are colours."""

    text: str
    state: str = ""


def render(view: RunView, width: int) -> str:
    """Give the view as text that is nowhere wider than `width` columns."""
    return "\n".join(line.text for line in lines(view, width))


def lines(view: RunView, width: int) -> list[Line]:
    """Give the lines of the view: the run, then its tasks, or the urgent ones and how many there are of the others."""
    own, folded = _fold(view.tasks)
    names = max((width_of(clean(task.id)) for task in own), default=0)
    column = min(names, max(8, int(width * _NAME_SHARE)))
    body = [_task_line(task, column, width) for task in own]
    body += [Line(cut(f"  {text}", width), state) for state, text in _counts(folded)]
    return [Line(cut(_head(view), width), view.state), *body]


def aged(view: RunView, seconds: float) -> RunView:
    """Give the view as it is `seconds` later when nothing but time has gone by."""
    tasks = tuple(
        replace(task, seconds=task.seconds + seconds)
        if task.seconds is not None and task.state in _LIVE
        else task
        for task in view.tasks
    )
    total = view.seconds
    if total is not None and view.state in ("submitting", "running"):
        total += seconds
    return replace(view, tasks=tasks, seconds=total)


def changes(before: RunView | None, after: RunView) -> Iterator[str]:
    """Yield one line for each change that somebody who reads a log wants to know of.

    Progress of units alone is none: a sweep of ten thousand would fill the log. Why a run failed is no part of it: every command that
    shows a run to its end says that in full then.
    """
    known = {task.id: task for task in before.tasks} if before else {}
    for task in after.tasks:
        old = known.get(task.id)
        if old is None and task.state == "waiting":
            continue  # where every task begins
        if old is None or _notable(old) != _notable(task):
            message = f": {clean(task.message)}" if task.message else ""
            yield f"{clean(task.id)} {task.state}{_numbers(task)}{message}"
    if before is None or before.state != after.state:
        told_later = after.state == "failed" or after.message in ("", after.state)
        message = "" if told_later else f": {clean(after.message)}"
        yield f"run {after.run} {after.state}{message}"


def _notable(task: TaskView) -> tuple[object, ...]:
    return (task.state, task.retried, task.failed, task.message)


def _numbers(task: TaskView) -> str:
    text = ", ".join(_parts(task))
    return f" ({text})" if text else ""


def _head(view: RunView) -> str:
    done = sum(task.state == "done" for task in view.tasks)
    parts = [f"run {view.run}", view.state, f"{done} of {plural(len(view.tasks), 'task')} done"]
    if view.name and view.name != view.run:
        parts[0] = f"{clean(view.name)}  run {view.run}"
    if view.seconds is not None:
        parts.append(duration(view.seconds))
    if view.message:
        parts.append(clean(view.message))
    return "  ".join(parts)


def _fold(tasks: Sequence[TaskView]) -> tuple[list[TaskView], list[TaskView]]:
    """Part the tasks into those with a line of their own and those that are only counted."""
    if len(tasks) <= MOST_LINES:
        return list(tasks), []
    room = MOST_LINES - len(_FOLD_ORDER)
    urgent = [task for state in _URGENT for task in tasks if task.state == state]
    chosen = {task.id for task in urgent[:room]}
    return (
        [task for task in tasks if task.id in chosen],
        [task for task in tasks if task.id not in chosen],
    )


def _counts(folded: Sequence[TaskView]) -> Iterator[tuple[str, str]]:
    counted = Counter(task.state for task in folded)
    for state in sorted(counted, key=lambda name: (_rank(name), name)):
        yield (
            state,
            f"{plural(counted[state], 'more task' if state in _URGENT else 'task')} {state}",
        )


def _rank(state: str) -> int:
    return _FOLD_ORDER.index(state) if state in _FOLD_ORDER else len(_FOLD_ORDER)


def _parts(task: TaskView) -> list[str]:
    """Give the numbers of a task; what went wrong stands before what is only progress when the line gets short."""
    parts = []
    if task.split:
        parts.append(f"{task.done}/{'?' if task.total is None else task.total}")
    if task.failed:
        parts.append(f"failed {task.failed}")
    if task.split and task.running:
        parts.append(f"running {task.running}")
    if task.retried:
        parts.append(f"retried {task.retried}")
    return parts


def _task_line(task: TaskView, column: int, width: int) -> Line:
    parts = _parts(task)
    # `14/20, running 2` says that it runs
    if not (task.state == "running" and parts and task.split):
        parts = [task.state, *parts] if not task.split else [f"{task.state} {parts[0]}", *parts[1:]]
    text = f"  {pad(cut_middle(clean(task.id), column), column)}  {', '.join(parts)}"
    if task.seconds is not None:
        time = duration(task.seconds)
        if width_of(text) + 2 + len(time) <= width:
            text += f"  {time}"
    if task.message and width_of(text) + 10 <= width:
        text += f"  {clean(task.message)}"
    return Line(cut(text, width), task.state)
