"""Records of runs: how they come into being, change, go, and what a damaged one does to the others."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from simrun.base.errors import Conflict, DamagedRecord, NotFound, UnknownSchema
from simrun.model.record import RunRecord, RunState, TaskState
from simrun.model.report import AttemptEvidence, WorkerReport
from simrun.model.workflow import Submission
from simrun.store import codec
from simrun.store.layout import RunDir
from simrun.store.runs import RunStore
from tests.mounts import mounted, two_views

New = Callable[..., RunRecord]


def ended(record: RunRecord, **values: object) -> RunRecord:
    return record.changed(state=RunState.SUCCEEDED, **values)


def put(store: RunStore, record: RunRecord, submission: Submission) -> RunRecord:
    return store.create(record, submission)


def snapshot(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


# --- existence -----------------------------------------------------------------------------------------------------------


def test_a_run_exists_when_its_record_does_with_all_that_belongs_to_it(
    store: RunStore, submission: Submission, new: New
) -> None:
    there: list[bool] = []

    def prepare(run: RunDir) -> None:
        there.append(run.record.exists() or run.submission.exists())
        run.code.mkdir()
        (run.code / "plugin.py").write_text("x = 1")

    made = store.create(new(), submission, prepare)

    assert there == [False]
    assert made == store.read("run1") == new()
    assert store.submission("run1") == submission
    assert store.run_ids() == store.live_ids() == ["run1"]
    assert set(snapshot(store.layout.run("run1").root)) == {
        "run.json",
        "submission.json",
        "code/plugin.py",
    }


def test_a_second_creation_gives_the_run_that_is_there_and_touches_no_file_of_it(
    store: RunStore, submission: Submission, new: New
) -> None:
    store.create(new(name="first"), submission, lambda run: run.code.mkdir())
    before = snapshot(store.layout.run("run1").root)

    def prepare(run: RunDir) -> None:
        raise AssertionError("nothing is prepared for a run that exists")

    there = store.create(new(name="second"), submission.model_copy(), prepare)

    assert there.name == "first"
    assert snapshot(store.layout.run("run1").root) == before


def test_a_directory_without_a_record_is_an_unfinished_creation_that_the_next_one_completes(
    store: RunStore, submission: Submission, new: New
) -> None:
    def break_off(run: RunDir) -> None:
        run.code.mkdir(exist_ok=True)
        (run.code / "half").write_text("")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.create(new(name="first"), submission, break_off)
    assert store.run_ids() == ["run1"]
    with pytest.raises(NotFound, match="no run 'run1'"):
        store.read("run1")
    assert list(store.records()) == []

    assert store.create(new(name="second"), submission).name == "second"


def test_processes_that_create_one_run_leave_one_record_with_its_own_submission_and_files(
    store: RunStore, tmp_path: Path
) -> None:
    names = ["ada", "bob", "cyd", "dan"]
    root = str(store.layout.root)
    racers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.store.racer", root, "race", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in names
    ]
    try:
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n"
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("g")
            racer.stdin.flush()
        answers = [racer.communicate(timeout=30)[0].strip() for racer in racers]
    finally:
        for racer in racers:
            racer.kill()
            racer.wait()

    winner = store.read("race").name
    assert answers == [winner] * 4
    assert store.submission("race").workflow.name == winner
    assert (store.layout.run("race").code / "plugin.py").read_text() == winner


def test_threads_that_create_one_run_leave_one_record_with_its_own_submission(
    store: RunStore, submission: Submission, new: New
) -> None:
    gate = threading.Barrier(8)

    def create(number: int) -> str:
        workflow = submission.workflow.model_copy(update={"name": f"flow-{number}"})
        mine = submission.model_copy(update={"workflow": workflow})
        gate.wait()
        return store.create(new("race", name=f"flow-{number}"), mine).name

    with ThreadPoolExecutor(8) as pool:
        answers = set(pool.map(create, range(8)))

    assert answers == {store.read("race").name} == {store.submission("race").workflow.name}


def test_a_creation_on_another_host_is_seen_although_a_cache_denies_it(
    submission: Submission, new: New
) -> None:
    with two_views() as (here, there):
        mine, theirs = RunStore(here), RunStore(there)
        mine.open()
        assert not (here / "runs" / "run1").exists()
        theirs.create(new(name="theirs"), submission)
        assert not (here / "runs" / "run1").exists()

        assert mine.run_ids() == ["run1"]
        assert mine.live_ids() == ["run1"]


def test_directories_of_a_run_are_the_pods_own_where_that_may_be_said(
    tmp_path: Path, submission: Submission, new: New
) -> None:
    owner = (12345, 12346) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    store = RunStore(tmp_path, owner=owner)
    store.open()
    store.create(new(), submission, lambda run: run.code.mkdir())
    run = store.layout.run("run1")
    (run.code / "link").symlink_to("/etc/passwd")
    store.give_tree(run)

    found = {(p.lstat().st_uid, p.lstat().st_gid) for p in (run.root, *run.root.rglob("*"))}
    assert found == {owner}
    assert os.stat("/etc/passwd").st_uid == 0


@pytest.mark.parametrize("run_id", ["..", ".", "", "a/b", "../runs/run1", "RUN1", "run1\0"])
def test_what_is_no_run_id_is_no_run_and_no_path(
    store: RunStore, submission: Submission, new: New, run_id: str
) -> None:
    store.create(new(), submission)
    for look in (store.read, store.submission, store.delete):
        with pytest.raises(NotFound):
            look(run_id)


# --- damage --------------------------------------------------------------------------------------------------------------

WHOLE = codec.encode(RunRecord.model_validate({"id": "bad", "times": {"created": 1}, "name": "é"}))
DAMAGE = {
    "of 0 bytes": b"",
    "cut": WHOLE[:-20],
    "cut in the middle of a character": WHOLE[: WHOLE.index("é".encode()) + 1],
    "padded with NUL": WHOLE + b"\0" * 512,
    "of NUL alone": b"\0" * 4096,
    "a list": b"[]",
    "a string": b'"run"',
    "null": b"null",
    "an empty object": b"{}",
    "of a field of the wrong type": WHOLE.replace(b'"bad"', b"7"),
    "of an unknown state": WHOLE.replace(b'"name":', b'"state":"dancing","name":'),
    "with a schema that is no number": WHOLE.replace(b'"schema":1', b'"schema":"one"'),
    "of an older schema with nonsense in it": b'{"id":"bad","plans":[],"times":{"created":1}}',
    "nested without end": b"[" * 100_000,
    "of another run": WHOLE.replace(b'"bad"', b'"good"'),
}


@pytest.mark.parametrize("content", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_record_is_told_never_written_over_and_stops_no_other(
    store: RunStore, submission: Submission, new: New, content: bytes
) -> None:
    store.create(new("a"), submission)
    bad = store.create(new("bad"), submission)
    store.create(new("c"), submission)
    path = store.layout.run("bad").record
    path.write_bytes(content)

    with pytest.raises(DamagedRecord, match=str(path)):
        store.read("bad")
    with pytest.raises(DamagedRecord):
        store.create(new("bad"), submission)
    with pytest.raises(DamagedRecord):
        store.write_if_unchanged(bad, bad.changed(name="x"))
    with pytest.raises(DamagedRecord):
        store.delete("bad")

    assert path.read_bytes() == content
    found = list(store.records())
    assert [item.id for item in found if isinstance(item, RunRecord)] == ["c", "a"]
    assert [str(path) in str(item) for item in found if isinstance(item, DamagedRecord)] == [True]


@pytest.mark.parametrize("kind", ["directory", "fifo", "link to itself", "device"])
def test_something_else_in_the_place_of_a_record_is_damage_and_blocks_nobody(
    store: RunStore, submission: Submission, new: New, kind: str
) -> None:
    store.create(new("a"), submission)
    path = store.layout.run("bad").record
    path.parent.mkdir()
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero" if kind == "device" else path)

    with pytest.raises(DamagedRecord, match="can't be read"):
        store.read("bad")
    assert [type(item) for item in store.records()] == [DamagedRecord, RunRecord]


def test_the_record_of_a_newer_simrun_is_refused_by_name_and_left_alone(
    store: RunStore, submission: Submission, new: New
) -> None:
    store.create(new(), submission)
    path = store.layout.run("run1").record
    path.write_bytes(path.read_bytes().replace(b'"schema":1', b'"schema":2'))

    with pytest.raises(UnknownSchema, match="has schema 2, this simrun knows up to 1"):
        store.read("run1")


def test_a_damaged_report_is_left_out_and_the_others_are_read(
    store: RunStore, submission: Submission, new: New
) -> None:
    store.create(new(), submission)
    directory = store.layout.run("run1").task("only").reports
    directory.mkdir(parents=True)
    good = WorkerReport(
        run="run1",
        task="only",
        worker="only",
        attempt=1,
        exit_code=0,
        reason="completed",
        started=1,
        ended=2,
    )
    (directory / "only-1.json").write_bytes(codec.encode(good))
    (directory / "only-0.json").write_bytes(b"{")
    (directory / "only-2.json").write_bytes(b'{"schema":2}')
    (directory / "notes.txt").write_text("")
    os.mkfifo(directory / "only-3.json")

    assert store.reports("run1", "only") == {"only-1": good}
    assert store.reports("run1", "nothing-here") == {}


# --- changes -------------------------------------------------------------------------------------------------------------


def test_a_record_is_written_when_it_is_still_what_it_was_and_its_revision_grows(
    store: RunStore, submission: Submission, new: New
) -> None:
    first = store.create(new(), submission)

    second = store.write_if_unchanged(first, first.changed(state=RunState.RUNNING))

    assert second == store.read("run1")
    assert (second.state, second.revision) == (RunState.RUNNING, 1)
    assert store.write_if_unchanged(first, first.changed(name="late")) is None
    assert store.read("run1") == second


def test_a_record_with_its_workflow_at_hand_is_still_the_one_on_disk(
    store: RunStore, submission: Submission, new: New
) -> None:
    first = store.create(new(), submission).with_workflow(submission.workflow)
    written = store.write_if_unchanged(first, first.changed(name="x"))
    assert written is not None
    assert written.workflow is None
    assert b"workflow" not in store.layout.run("run1").record.read_bytes()


def test_of_writers_that_saw_the_same_record_one_wins_each_time(
    store: RunStore, submission: Submission, new: New
) -> None:
    store.create(new(), submission)
    rounds, writers = 20, 6
    gate = threading.Barrier(writers)

    def write(number: int) -> int:
        won = 0
        for _ in range(rounds):
            before = store.read("run1")
            gate.wait()
            after = before.changed(owner=f"writer-{number}")
            won += store.write_if_unchanged(before, after) is not None
            gate.wait()
        return won

    with ThreadPoolExecutor(writers) as pool:
        wins = list(pool.map(write, range(writers)))

    assert sum(wins) == rounds == store.read("run1").revision


def test_a_count_that_all_raise_by_writing_only_what_is_unchanged_loses_nothing(
    store: RunStore, submission: Submission, new: New
) -> None:
    store.create(new(), submission)

    def raise_it(_: int) -> None:
        while True:
            before = store.read("run1")
            after = before.changed(round=before.round + 1)
            if store.write_if_unchanged(before, after) is not None:
                return

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(raise_it, range(60)))

    assert store.read("run1").round == 60


def test_a_writer_of_an_earlier_epoch_is_fenced_off(
    store: RunStore, submission: Submission, new: New
) -> None:
    first = store.create(new(epoch=3), submission)

    assert store.write_if_unchanged(first, first.changed(epoch=2, name="old leader")) is None
    assert store.read("run1") == first
    assert store.write_if_unchanged(first, first.changed(epoch=4)) is not None
    assert store.read("run1").epoch == 4


def test_a_remembered_record_is_what_was_last_read_or_written_here_and_costs_no_look(
    store: RunStore, submission: Submission, new: New
) -> None:
    assert store.remembered("run1") is None
    first = store.create(new(), submission)
    assert store.read("run1") == store.remembered("run1") == first
    second = store.write_if_unchanged(first, first.changed(name="second"))
    assert store.remembered("run1") is second

    other = RunStore(store.layout.root)
    third = other.write_if_unchanged(other.read("run1"), first.changed(name="third"))

    assert store.remembered("run1") is second
    assert second is not None
    assert store.write_if_unchanged(second, second.changed(name="lost")) is None
    assert store.remembered("run1") == third == other.read("run1")


@pytest.mark.parametrize("damage", [None, b"{", WHOLE.replace(b'"bad"', b'"good"')])
def test_a_record_that_is_gone_or_damaged_is_remembered_no_longer_than_until_it_is_looked_for(
    store: RunStore, submission: Submission, new: New, damage: bytes | None
) -> None:
    seen = store.create(new("bad"), submission)
    store.read("bad")
    path = store.layout.run("bad").record
    path.unlink()
    if damage is None:
        assert store.write_if_unchanged(seen, seen.changed(name="x")) is None
    else:
        path.write_bytes(damage)
        with pytest.raises(DamagedRecord):
            store.write_if_unchanged(seen, seen.changed(name="x"))

    assert store.remembered("bad") is None


def test_a_record_that_is_gone_is_not_written_again(
    store: RunStore, submission: Submission, new: New
) -> None:
    record = store.create(new(), submission)
    ended_record = store.write_if_unchanged(record, ended(record))
    assert ended_record is not None
    store.delete("run1")
    assert store.write_if_unchanged(ended_record, ended_record.changed(name="x")) is None
    assert not store.layout.run("run1").root.exists()


def test_a_reader_sees_a_whole_record_at_every_moment(
    store: RunStore, submission: Submission, new: New
) -> None:
    record = store.create(new(message="x" * 20_000), submission)
    stop = threading.Event()

    def read() -> int:
        seen = 0
        while not stop.is_set():
            assert len(store.read("run1").message or "") == 20_000
            seen += 1
        return seen

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        for number in range(40):
            written = store.write_if_unchanged(record, record.changed(name=str(number)))
            assert written is not None
            record = written
        stop.set()
        assert all(reader.result() for reader in readers)


def test_no_temporary_file_stays(store: RunStore, submission: Submission, new: New) -> None:
    record = store.create(new(), submission)
    store.write_if_unchanged(record, record.changed(name="x"))
    assert not list(store.layout.root.rglob(".*"))


# --- the hint that a run may have something to do ------------------------------------------------------------------------


def test_a_run_is_marked_live_before_it_exists_and_until_nothing_of_it_is_pending(
    store: RunStore, submission: Submission, new: New
) -> None:
    marked: list[list[str]] = []
    record = store.create(new(), submission, lambda run: marked.append(store.live_ids()))
    assert store.live_ids() == ["run1"]

    pending = store.write_if_unchanged(record, ended(record, pending_cancel=True))
    assert pending is not None
    assert store.live_ids() == ["run1"]
    settled = store.write_if_unchanged(pending, pending.changed(pending_cancel=False))
    assert settled is not None
    assert store.live_ids() == []

    again = store.write_if_unchanged(settled, settled.changed(state=RunState.SUBMITTING, round=1))
    assert again is not None
    assert store.live_ids() == ["run1"]
    assert marked == [[]]


def test_a_mark_without_a_run_is_only_a_hint(store: RunStore) -> None:
    store.mark_live("never-made")
    assert store.live_ids() == ["never-made"]
    assert list(store.records()) == []


# --- deletion ------------------------------------------------------------------------------------------------------------


def test_a_deleted_run_is_gone_and_its_id_is_not_used_again(
    store: RunStore, submission: Submission, new: New
) -> None:
    record = store.create(new(), submission)
    store.write_if_unchanged(record, ended(record))

    store.delete("run1")

    assert store.run_ids() == store.live_ids() == []
    with pytest.raises(NotFound):
        store.read("run1")
    with pytest.raises(NotFound):
        store.delete("run1")
    with pytest.raises(Conflict, match="was deleted; its id is not used again"):
        store.create(new(), submission)
    assert store.run_ids() == store.live_ids() == []


@pytest.mark.parametrize(
    "change",
    [
        {"state": RunState.RUNNING},
        {"state": RunState.SUBMITTING},
        {"state": RunState.FAILED, "pending_logs": True},
        {"state": RunState.CANCELLED, "pending_release": True},
    ],
)
def test_only_an_ended_run_with_nothing_pending_can_be_deleted(
    store: RunStore, submission: Submission, new: New, change: dict[str, object]
) -> None:
    record = store.create(new(), submission)
    store.write_if_unchanged(record, record.changed(**change))
    with pytest.raises(Conflict, match="only an ended run"):
        store.delete("run1")
    assert store.read("run1").id == "run1"
    assert not store.layout.tombstone("run1").exists()


def test_a_creation_that_a_deletion_overtakes_undoes_itself(
    store: RunStore, submission: Submission, new: New
) -> None:
    def delete_meanwhile(run: RunDir) -> None:
        store.layout.tombstone("run1").touch()

    with pytest.raises(Conflict, match="was deleted"):
        store.create(new(), submission, delete_meanwhile)
    assert store.run_ids() == store.live_ids() == []


def test_a_half_done_deletion_is_finished_at_the_start(
    store: RunStore, submission: Submission, new: New
) -> None:
    for run_id in ("half", "hint-only", "kept"):
        store.create(new(run_id), submission)
    store.layout.tombstone("half").touch()
    store.layout.tombstone("hint-only").touch()
    for path in sorted(store.layout.run("hint-only").root.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    store.layout.run("hint-only").root.rmdir()
    store.layout.tombstone("long-gone").touch()

    store.finish_deletions()

    assert store.run_ids() == store.live_ids() == ["kept"]


def test_a_deletion_never_removes_through_a_link(
    store: RunStore, submission: Submission, new: New, tmp_path: Path
) -> None:
    (tmp_path / "precious").write_text("kept")
    record = store.create(new(), submission)
    run = store.layout.run("run1")
    (run.root / "out").symlink_to(tmp_path)
    store.write_if_unchanged(record, ended(record))

    store.delete("run1")

    assert (tmp_path / "precious").read_text() == "kept"
    assert not run.root.exists()


def test_creation_and_deletion_at_once_end_in_one_of_the_two(
    store: RunStore, submission: Submission, new: New
) -> None:
    for number in range(20):
        run_id = f"run{number}"
        record = store.create(new(run_id), submission)
        store.write_if_unchanged(record, ended(record))
        gate = threading.Barrier(2)

        def create(run_id: str = run_id, gate: threading.Barrier = gate) -> str:
            gate.wait()
            try:
                return store.create(new(run_id), submission).id
            except (Conflict, NotFound):
                return "refused"

        def delete(run_id: str = run_id, gate: threading.Barrier = gate) -> None:
            gate.wait()
            store.delete(run_id)

        with ThreadPoolExecutor(2) as pool:
            answer, gone = pool.submit(create), pool.submit(delete)
            assert answer.result() in (run_id, "refused")
            gone.result()
        assert run_id not in store.live_ids()
        with pytest.raises(NotFound):
            store.read(run_id)


# --- what pods and service leave -----------------------------------------------------------------------------------------


def test_evidence_of_an_attempt_is_replaced_by_a_later_word_and_given_in_order(
    store: RunStore, submission: Submission, new: New
) -> None:
    store.create(new(), submission)
    (store.layout.run("run1").tasks / "only").mkdir()
    for worker, number in (("only-w1", 0), ("only-w0", 10), ("only-w0", 9)):
        store.keep_evidence("run1", "only", AttemptEvidence(worker=worker, attempt=number))
    store.keep_evidence(
        "run1", "only", AttemptEvidence(worker="only-w0", attempt=9, reason="oom", oom=True)
    )
    (store.layout.run("run1").task("only").attempts / "only-w0-1.json").write_bytes(b"[")

    found = store.evidence("run1", "only")

    assert [(item.worker, item.attempt) for item in found] == [
        ("only-w0", 9),
        ("only-w0", 10),
        ("only-w1", 0),
    ]
    assert found[0].oom


def test_a_mark_is_made_once(store: RunStore, submission: Submission, new: New) -> None:
    store.create(new(), submission)
    directory = store.layout.run("run1").task("only").recorded
    directory.parent.mkdir()
    assert store.mark(directory, "only-w0-0.json", b"first")
    assert not store.mark(directory, "only-w0-0.json", b"second")
    assert (directory / "only-w0-0.json").read_bytes() == b"first"
    assert store.recorded("run1", "only") == {"only-w0-0"}
    assert store.recorded("run1", "other") == set()


def test_task_states_survive_the_disk(store: RunStore, submission: Submission, new: New) -> None:
    states = {f"t{number}": state for number, state in enumerate(TaskState)}
    store.create(new(tasks=states), submission)
    assert store.read("run1").tasks == states


def test_a_record_that_is_being_replaced_is_never_no_run(
    tmp_path: Path, submission: Submission, new: New
) -> None:
    # On FUSE an open may be denied for the moment in which another thread replaces the file
    with mounted(tmp_path) as place:
        store = RunStore(place / "store")
        store.open()
        now = store.create(new(), submission)
        over = threading.Event()

        def read() -> set[str]:
            seen = set()
            while not over.is_set():
                seen.add(store.read("run1").id)
            return seen

        with ThreadPoolExecutor(3) as pool:
            readers = [pool.submit(read) for _ in range(3)]
            for number in range(300):
                written = store.write_if_unchanged(now, now.changed(message=f"write {number}"))
                assert written is not None
                now = written
            over.set()
            assert [reader.result() for reader in readers] == [{"run1"}] * 3


def test_a_pod_that_was_only_seen_to_run_gives_its_number_to_the_next_and_an_ended_one_keeps_it(
    store: RunStore, submission: Submission, new: New
) -> None:
    store.create(new(), submission)
    (store.layout.run("run1").tasks / "only").mkdir()
    seen = AttemptEvidence(worker="only", attempt=0, pod_uid="first-pod")
    store.keep_evidence("run1", "only", seen)
    ended = AttemptEvidence(worker="only", attempt=0, pod_uid="second-pod", reason="lost")
    store.keep_evidence("run1", "only", ended)
    assert [item.pod_uid for item in store.evidence("run1", "only")] == ["second-pod"]

    third = AttemptEvidence(worker="only", attempt=0, pod_uid="third-pod", reason="completed")
    store.keep_evidence("run1", "only", third)

    assert {item.pod_uid for item in store.evidence("run1", "only")} == {"second-pod", "third-pod"}


def test_what_another_host_kept_of_an_attempt_is_found_though_it_was_denied_a_moment_ago(
    submission: Submission, new: New
) -> None:
    with two_views() as (here, there):
        mine, theirs = RunStore(here), RunStore(there)
        mine.open()
        mine.create(new(), submission)
        (mine.layout.run("run1").tasks / "only").mkdir()
        mine.layout.run("run1").task("only").attempts.mkdir()
        assert not (theirs.layout.run("run1").task("only").attempts / "only-0.json").exists()
        first = AttemptEvidence(worker="only", attempt=0, pod_uid="pod", started=5.0)
        mine.keep_evidence("run1", "only", first)
        kept = []

        def merge(old: AttemptEvidence | None, now: AttemptEvidence) -> AttemptEvidence:
            kept.append(old)
            return now

        end = AttemptEvidence(worker="only", attempt=0, pod_uid="pod", reason="completed")
        theirs.keep_evidence("run1", "only", end, merge)

    assert kept == [first]
