"""Every metric of simrun: its name, what it counts, and its labels. The one place for them; docs/reference/metrics.md shows the same.

No label names a run, a task, a pod, a group or a person: the number of series depends on this table alone, not on what was ever run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PREFIX = "simrun_"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric. name: without prefix, and without the `_total` of counters."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    text: str
    labels: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """The name as it is exported, of a histogram without `_bucket`, `_sum` and `_count`."""
        return f"{PREFIX}{self.name}{'_total' if self.kind == 'counter' else ''}"


def _counter(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, "counter", text, labels)


def _gauge(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, "gauge", text, labels)


def _histogram(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, "histogram", text, labels)


BUILD = _gauge("build_info", "1; the label is the version.", "version")
READY = _gauge("ready", "1 while runs are followed, else 0; /readyz says why.")

RUNS = _gauge("runs", "Runs in the store, by state.", "state")
RUN_SECONDS = _histogram(
    "run_duration_seconds", "From creation to end of runs that ended, by state.", "state"
)
TASK_SECONDS = _histogram(
    "task_duration_seconds",
    "From the start of the first attempt to the end of the last, of tasks that ended, by state.",
    "state",
)
ATTEMPTS = _counter("attempts_ended", "Attempts that ended, by reason.", "reason")
RETRIES = _counter(
    "retries", "Attempts made after another one, by the reason for which that ended.", "cause"
)
LOST_CPU = _counter(
    "lost_cpu_seconds",
    "Processor time that was given to attempts which did not complete, by reason. Units they had committed are kept.",
    "reason",
)
LOST_MEMORY = _counter(
    "lost_memory_byte_seconds",
    "Memory times time that was given to attempts which did not complete, by reason.",
    "reason",
)
SUBMISSIONS = _gauge(
    "submissions", "Submissions under way, and those of them held up by the backend.", "state"
)

QUEUE_RUNS = _gauge("queue_runs", "Runs in the queue of the controller, by place.", "place")
QUEUE_OLDEST = _gauge("queue_oldest_seconds", "How long the oldest run that is ready has waited.")
QUEUE_ADDS = _counter("queue_adds", "Times a run was put into the queue.")
QUEUE_RETRIES = _counter("queue_retries", "Looks at a run that failed and are made again.")
QUEUE_SECONDS = _histogram("queue_wait_seconds", "How long runs waited to be looked at.")
LOOK_SECONDS = _histogram("look_duration_seconds", "How long looks at a run took.")
DRIFT = _counter("drift", "Records that a resync changed of which no event had told. Stays 0.")

BACKEND_AGE = _gauge(
    "backend_age_seconds", "Seconds since the cluster was last heard of; missing without a cluster."
)
WATCH_AGE = _gauge("watch_age_seconds", "Seconds since a watch was last heard of.", "resource")
WATCH_LISTS = _counter("watch_lists", "Lists that were read for a watch.", "resource")
WATCH_STARTS = _counter("watch_starts", "Times a watch was begun or gone on with.", "resource")
WATCH_EVENTS = _counter("watch_events", "Events of a watch.", "resource")
WATCH_FAILURES = _counter("watch_failures", "Lists and watches that failed.", "resource")
WATCH_EXPIRED = _counter(
    "watch_expired", "Times a watch could not go on and had to list anew (410 Gone).", "resource"
)
WATCH_DRIFT = _counter(
    "watch_drift", "Changes that an audit found and the watch never told. Stays 0.", "resource"
)

SCHEDULES = _gauge(
    "schedules",
    "Active schedules, and those of them that are paused, that fire nothing since something is wrong with them, and that catch up.",
    "state",
)
FIRES = _counter("schedule_fires", "Instants that came to their end, by outcome.", "outcome")
FIRE_TRIES = _counter("schedule_failed_tries", "Tries to make a run of an instant that failed.")
FIRES_LOST = _counter(
    "schedule_lost", "Instants that were not fired on purpose, by reason.", "reason"
)
LATENESS = _histogram(
    "schedule_lateness_seconds", "From an instant to its run, of instants that were not missed."
)
BACKLOG = _gauge("schedule_backlog", "Instants that are due and have not come to their end.")
RETRYING = _gauge("schedule_retrying", "Instants that wait to be tried again.")
SCHEDULER_LIVE = _gauge("scheduler_live", "1 once the catch-up of the start has ended.")
LAST_TICK = _gauge(
    "scheduler_last_tick_timestamp_seconds",
    "When the last look at the schedules came to its end, in seconds since 1970; 0 before the first.",
)

LOOP_LAG = _histogram("loop_lag_seconds", "By how much the event loop was late.")
STORE_SECONDS = _histogram(
    "store_call_duration_seconds", "How long calls of the store took.", "kind"
)
POOL_THREADS = _gauge("pool_threads", "Threads of a pool.", "pool")
POOL_BUSY = _gauge("pool_busy", "Threads of a pool that have a call.", "pool")
POOL_WAITING = _gauge("pool_waiting", "Calls that wait for a thread of a pool.", "pool")

HTTP_REQUESTS = _counter(
    "http_requests",
    "Requests that were answered, by route and class of status.",
    "method",
    "route",
    "status",
)
HTTP_SECONDS = _histogram(
    "http_request_duration_seconds",
    "How long requests took; of an answer that is sent bit by bit, until it began.",
    "method",
    "route",
)
STREAMS = _gauge("event_streams", "Streams of events that are open.", "route")
EVENTS = _counter("events", "Changes of runs that were told to the stream of all.")
REFUSALS = _counter("limit_refusals", "Requests that a limit refused.", "limit")
TOKEN_FAILURES = _counter(
    "token_file_failures", "Changes of the file of tokens that could not be taken over."
)

ALL: tuple[Metric, ...] = tuple(
    value for value in dict(globals()).values() if isinstance(value, Metric)
)
