import pytest

from simrun.backends.local.records import Order
from simrun.backends.local.verdict import verdict

BARE = Order(
    directory="d", attempt="a-0", uid="u", command=["x"], env={}, cwd="/", scratch="s", log="l",
    deadline_s=5.0, orphan_s=600.0,
)  # fmt: skip
HARNESS = Order(directory="d", attempt="a-0", uid="u", command=["x"], env={}, cwd="/", scratch="s")


@pytest.mark.parametrize(
    ("status", "cause", "killed", "reason", "code"),
    [
        (0, None, False, "completed", 0),
        (0, None, True, "completed", 0),  # something below was killed, and the command coped
        (0, "asked", False, "completed", 0),
        (0, "orphaned", False, "completed", 0),
        (0, "deadline", False, "deadline", 3),
        (-9, "deadline", False, "deadline", 3),
        (-9, "deadline", True, "deadline", 3),
        (3, None, False, "error", 3),
        (-11, None, False, "error", 139),
        (3, None, True, "oom", 137),
        (-9, None, True, "oom", 137),
        (-9, "memory", True, "oom", 137),
        (-9, None, False, "evicted", 137),
        (-15, None, False, "evicted", 143),
        (143, None, False, "evicted", 143),
        (137, None, False, "error", 137),
        (-15, "asked", False, "cancelled", 143),
        (-9, "asked", True, "cancelled", 137),
        (1, "asked", False, "cancelled", 1),
        (-9, "orphaned", False, "evicted", 143),
        (1, "orphaned", True, "evicted", 143),
    ],
)
def test_an_end_has_one_reason_and_one_code(status, cause, killed, reason, code):
    judged = verdict(BARE, status, cause, killed=killed)
    assert (judged.reason, judged.code) == (reason, code)
    assert judged.oom is (reason == "oom")


def test_a_harness_that_exits_137_without_a_kill_asks():
    assert verdict(HARNESS, 137, None, killed=False).reason == "asked"
    assert verdict(HARNESS, 137, None, killed=True).reason == "oom"
    assert verdict(HARNESS, -9, None, killed=False).reason == "evicted"


def test_a_deadline_and_an_absent_engine_say_how_long_it_was():
    assert verdict(BARE, -15, "deadline", killed=False).message == "not done within 5 s"
    assert verdict(BARE, -15, "orphaned", killed=False).message == "no engine was there for 600 s"
