"""What is shown of a run, as text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simrun.cli.formatting import width_of
from simrun.cli.view import MOST_LINES, RunView, TaskView, aged, changes, render

SWEEP = TaskView(
    id="sweep", state="running", split=True, done=14, total=20, running=2, retried=1, seconds=41
)
RUN = RunView(
    run="01k8",
    state="running",
    seconds=43,
    tasks=(
        TaskView(id="prepare", state="done", seconds=2.0),
        SWEEP,
        TaskView(id="merge", state="waiting"),
    ),
)


def test_a_split_task_is_one_line_with_its_counts() -> None:
    assert render(RUN, 80).splitlines() == [
        "run 01k8  running  1 of 3 tasks done  43s",
        "  prepare  done  2.0s",
        "  sweep    14/20, running 2, retried 1  41s",
        "  merge    waiting",
    ]


def test_a_split_task_that_does_not_run_says_how_it_stands() -> None:
    task = replace(SWEEP, state="failed", running=0, failed=3, message="3 units failed")

    (line,) = render(replace(RUN, tasks=(task,)), 120).splitlines()[1:]

    assert line == "  sweep  failed 14/20, failed 3, retried 1  41s  3 units failed"


def test_a_total_that_nobody_knows_yet_is_a_question_mark() -> None:
    task = replace(SWEEP, done=0, total=None, retried=0)

    assert "0/?, running 2" in render(replace(RUN, tasks=(task,)), 80)


@pytest.mark.parametrize("width", [20, 30, 40, 60])
def test_nothing_is_wider_than_the_terminal_and_counts_outlive_names(width: int) -> None:
    task = replace(SWEEP, id="sweep-over-all-the-masses-and-radii", message="x" * 200)

    lines = render(replace(RUN, tasks=(task, *RUN.tasks), message="y" * 200), width).splitlines()

    assert all(width_of(line) <= width for line in lines)
    assert "14/20" in lines[1]
    if width >= 60:
        assert "retried 1" in lines[1]


def test_large_runs_keep_lines_for_what_needs_attention_and_count_the_rest() -> None:
    tasks = [TaskView(id=f"t{n}", state="done") for n in range(900)]
    tasks += [TaskView(id=f"w{n}", state="waiting") for n in range(50)]
    tasks += [TaskView(id=f"r{n}", state="running") for n in range(40)]
    tasks += [TaskView(id="bad", state="failed"), TaskView(id="again", state="retrying", retried=2)]

    lines = render(replace(RUN, tasks=tuple(tasks)), 80).splitlines()

    assert len(lines) <= MOST_LINES + 1
    assert any(line.startswith("  bad ") for line in lines)
    assert any(line.startswith("  again ") for line in lines)
    assert "  20 more tasks running" in lines
    assert "  900 tasks done" in lines
    assert "  50 tasks waiting" in lines


def test_a_message_of_a_simulation_can_not_steer_the_terminal() -> None:
    task = replace(SWEEP, message="\x1b[2J\x07boom")

    text = render(replace(RUN, tasks=(task,), name="\x1b]0;x"), 120)

    assert "\x1b" not in text
    assert "\x07" not in text


def test_time_goes_on_for_what_runs_and_for_nothing_else() -> None:
    later = aged(RUN, 10)

    assert [task.seconds for task in later.tasks] == [2.0, 51, None]
    assert later.seconds == 53
    assert aged(replace(RUN, state="failed"), 10).seconds == 43


def test_a_first_look_tells_states_that_are_news() -> None:
    assert list(changes(None, RUN)) == [
        "prepare done",
        "sweep running (14/20, running 2, retried 1)",
        "run 01k8 running",
    ]


def test_progress_of_units_alone_is_no_change() -> None:
    after = replace(RUN, tasks=(RUN.tasks[0], replace(SWEEP, done=15, running=3), RUN.tasks[2]))

    assert list(changes(RUN, after)) == []


def test_states_retries_and_failures_are_changes() -> None:
    done = replace(SWEEP, state="done", done=20, running=0)
    retried = replace(SWEEP, retried=2, message="oom")

    assert list(changes(RUN, replace(RUN, tasks=(done,)))) == ["sweep done (20/20, retried 1)"]
    assert list(changes(RUN, replace(RUN, tasks=(retried,)))) == [
        "sweep running (14/20, running 2, retried 2): oom"
    ]
    assert list(changes(RUN, replace(RUN, state="failed", message="sweep failed"))) == [
        "run 01k8 failed"
    ]
    cancelled = replace(RUN, state="cancelled", message="cancelled")
    assert list(changes(RUN, cancelled)) == ["run 01k8 cancelled"]
    held_up = replace(RUN, state="submitting", message="the cluster does not answer")
    assert list(changes(RUN, held_up)) == ["run 01k8 submitting: the cluster does not answer"]
