"""Metrics: what the parts counted, in the words of Prometheus, when somebody asks.

Nothing here is fed: the parts have plain numbers of their own, and this reads them. So a metric costs nothing where things happen, and
there is no registry that a second application in the process could share by mistake.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from simrun.base.about import VERSION
from simrun.base.histogram import Histogram
from simrun.model.record import RunState
from simrun.scheduler.history import Why
from simrun.scheduler.statistics import SchedulerStatistics
from simrun.service import catalogue
from simrun.service.catalogue import PREFIX, Metric
from simrun.service.httptally import HttpTally
from simrun.service.statistics import ControllerStatistics, SessionStatistics
from simrun.service.tally import Tally

Labels = tuple[str, ...]
Values = Iterable[tuple[Labels, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything that metrics are made from, at one moment.

    lag: None where it is not measured. runs: how many there are by state, None where that is not known now.
    """

    session: SessionStatistics
    http: HttpTally
    lag: Histogram | None = None
    ready: bool = True
    runs: Mapping[str, int] | None = None
    schedules: SchedulerStatistics = field(default_factory=SchedulerStatistics)
    refusals: Mapping[str, int] = field(default_factory=dict)
    token_failures: int = 0


def families(found: Snapshot) -> list[Family]:
    """Give all metrics but those of the process."""
    session = found.session
    lag = [((), found.lag)] if found.lag is not None else []
    return [
        _family(catalogue.BUILD, [((VERSION,), 1)]),
        _family(catalogue.READY, [((), int(found.ready))]),
        _family(catalogue.RUNS, _by_state(found.runs)),
        *_outcomes(session.controller.tally),
        *_controller(session.controller),
        *_watches(session),
        *_schedules(found.schedules),
        _histogram(catalogue.LOOP_LAG, lag),
        _histogram(
            catalogue.STORE_SECONDS, [((kind,), one) for kind, one in session.store.items()]
        ),
        _family(catalogue.POOL_THREADS, [((one.name,), one.threads) for one in session.pools]),
        _family(catalogue.POOL_BUSY, [((one.name,), one.busy) for one in session.pools]),
        _family(catalogue.POOL_WAITING, [((one.name,), one.waiting) for one in session.pools]),
        *_http(found.http),
        _family(catalogue.EVENTS, [((), session.events)]),
        _family(catalogue.REFUSALS, _labelled(found.refusals)),
        _family(catalogue.TOKEN_FAILURES, [((), found.token_failures)]),
    ]


class _Given(Collector):
    def __init__(self, found: Iterable[Family]) -> None:
        self._found = list(found)

    def collect(self) -> Iterable[Family]:
        return self._found


def exposed(found: Iterable[Family], accept: str) -> tuple[bytes, str]:
    """Give metrics, and those of the process, in the form that `accept` asks for; and its content type. To be called in a thread."""
    encode, content_type = choose_encoder(accept)
    process = ProcessCollector(registry=None)
    return encode(_Given([*found, *process.collect()])), content_type


# --- parts ---------------------------------------------------------------------------------------------------------------


def _outcomes(tally: Tally) -> list[Family]:
    return [
        _histogram(
            catalogue.RUN_SECONDS, [((state.value,), one) for state, one in tally.runs.items()]
        ),
        _histogram(
            catalogue.TASK_SECONDS, [((state.value,), one) for state, one in tally.tasks.items()]
        ),
        _family(catalogue.ATTEMPTS, _labelled(tally.attempts)),
        _family(catalogue.RETRIES, _labelled(tally.retries)),
        _family(catalogue.LOST_CPU, _labelled(tally.lost_cpu_s)),
        _family(catalogue.LOST_MEMORY, _labelled(tally.lost_memory_byte_s)),
    ]


def _controller(found: ControllerStatistics) -> list[Family]:
    queue = found.queue
    places = {"ready": queue.ready, "delayed": queue.delayed, "processing": queue.processing}
    submissions = {"running": found.submissions - found.held_up, "held_up": found.held_up}
    return [
        _family(catalogue.SUBMISSIONS, _labelled(submissions)),
        _family(catalogue.QUEUE_RUNS, _labelled(places)),
        _family(catalogue.QUEUE_OLDEST, [((), queue.oldest_s)]),
        _family(catalogue.QUEUE_ADDS, [((), queue.adds)]),
        _family(catalogue.QUEUE_RETRIES, [((), queue.retries)]),
        _histogram(catalogue.QUEUE_SECONDS, [((), found.waits)]),
        _histogram(catalogue.LOOK_SECONDS, [((), found.looks)]),
        _family(catalogue.DRIFT, [((), found.drift)]),
    ]


def _watches(found: SessionStatistics) -> list[Family]:
    watches = found.watches
    ages = {name: one.age_s for name, one in watches.items() if one.age_s is not None}
    return [
        _family(catalogue.BACKEND_AGE, [] if found.age_s is None else [((), found.age_s)]),
        _family(catalogue.WATCH_AGE, _labelled(ages)),
        _family(catalogue.WATCH_LISTS, [((name,), one.lists) for name, one in watches.items()]),
        _family(catalogue.WATCH_STARTS, [((name,), one.watches) for name, one in watches.items()]),
        _family(catalogue.WATCH_EVENTS, [((name,), one.events) for name, one in watches.items()]),
        _family(
            catalogue.WATCH_FAILURES, [((name,), one.failures) for name, one in watches.items()]
        ),
        _family(catalogue.WATCH_EXPIRED, [((name,), one.expired) for name, one in watches.items()]),
        _family(catalogue.WATCH_DRIFT, [((name,), one.drift) for name, one in watches.items()]),
    ]


def _schedules(found: SchedulerStatistics) -> list[Family]:
    states = {
        "active": found.schedules,
        "paused": found.paused,
        "unfit": found.unfit,
        "catching_up": found.catching_up,
    }
    outcomes = {"created": found.created, "exists": found.exists, "failed": found.failed}
    lost = {why.value: found.lost.get(why, 0) for why in Why}
    return [
        _family(catalogue.SCHEDULES, _labelled(states)),
        _family(catalogue.FIRES, _labelled(outcomes)),
        _family(catalogue.FIRE_TRIES, [((), found.failed_tries)]),
        _family(catalogue.FIRES_LOST, _labelled(lost)),
        _histogram(catalogue.LATENESS, [((), found.lateness)]),
        _family(catalogue.BACKLOG, [((), found.backlog)]),
        _family(catalogue.RETRYING, [((), found.retrying)]),
        _family(catalogue.SCHEDULER_LIVE, [((), int(found.live))]),
        _family(catalogue.LAST_TICK, [((), found.last_tick)]),
    ]


def _http(tally: HttpTally) -> list[Family]:
    return [
        _family(catalogue.HTTP_REQUESTS, tally.answers.items()),
        _histogram(catalogue.HTTP_SECONDS, tally.seconds.items()),
        _family(catalogue.STREAMS, _labelled(tally.streams)),
    ]


def _by_state(runs: Mapping[str, int] | None) -> Values:
    """Give a value for every state; one that nobody has is 0."""
    if runs is None:
        return []
    return [((state.value,), runs.get(state.value, 0)) for state in RunState]


# --- families ------------------------------------------------------------------------------------------------------------


def _labelled(values: Mapping[str, float]) -> Values:
    return [((label,), value) for label, value in values.items()]


def _family(metric: Metric, values: Values) -> Family:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    made = kind(f"{PREFIX}{metric.name}", metric.text, labels=metric.labels)
    for labels, value in values:
        made.add_metric(labels, value)
    return made


def _histogram(metric: Metric, values: Iterable[tuple[Labels, Histogram]]) -> Family:
    made = HistogramMetricFamily(metric.full_name, metric.text, labels=metric.labels)
    for labels, histogram in values:
        counts, total = histogram.snapshot()
        made.add_metric(labels, _buckets(histogram.bounds, counts), total)
    return made


def _buckets(bounds: Iterable[float], counts: Iterable[int]) -> list[tuple[str, float]]:
    named = [*map(floatToGoString, bounds), "+Inf"]
    return list(zip(named, map(float, counts), strict=True))
