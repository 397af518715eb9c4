"""What the cron engine costs; prints JSON.

    python benchmarks/bench_cron.py [--go]

The rate of next() for expressions from dense to sparse, each timed beside other engines in the same process, turn by turn, since
machines drift; the worst single answers; and 10,000 schedules parsed, asked for their next fire and walked through one day.
cronsim, croniter and APScheduler are compared where they are installed (pip install cronsim croniter apscheduler). With --go
robfig/cron is built in a temporary directory, for which Go fetches it. The engines do not all
mean the same by the same text; the rates compare what they cost. simrun's target is twice the rate of cronsim.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from zoneinfo import ZoneInfo

from simrun.scheduler.cron import parse

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
EXPRESSIONS = (
    "* * * * *",
    "*/5 * * * *",
    "5,35 8-18 * * mon-fri",
    "30 2 * * *",
    "0 10 1-7 * 1",
    "15 9 1 * *",
)
ZONES = ("UTC", "America/New_York")
FIRES = 2000
ROUNDS = 5
TARGET_RATIO = 2.0
SLOWEST_MS = 1.0
SCHEDULES = 10_000
Walk = Callable[[str, str], Iterator[object]]

GO = """
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/robfig/cron/v3"
)

func main() {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, arg := range os.Args[1:] {
		schedule, err := cron.ParseStandard(arg)
		if err != nil {
			panic(err)
		}
		best := 0.0
		for round := 0; round < 5; round++ {
			at, start := begin, time.Now()
			for n := 0; n < 2000; n++ {
				at = schedule.Next(at)
			}
			if rate := 2000 / time.Since(start).Seconds(); rate > best {
				best = rate
			}
		}
		fmt.Println(int(best))
	}
}
"""


def simrun(expression: str, zone: str) -> Iterator[object]:
    """Ask for each fire by a call of its own, as the scheduler does."""
    timetable, instant = parse(expression, zone), BEGIN
    while (following := timetable.next_after(instant)) is not None:
        instant = following
        yield instant


def engines() -> dict[str, Walk]:
    """Give every engine that is installed: an iterator of the fires of an expression in a zone."""
    found: dict[str, Walk] = {"simrun": simrun}
    if importlib.util.find_spec("cronsim"):
        from cronsim import CronSim

        found["cronsim"] = lambda expression, zone: CronSim(
            expression, BEGIN.astimezone(ZoneInfo(zone))
        )
    if importlib.util.find_spec("croniter"):
        from croniter import croniter

        def walk_croniter(expression: str, zone: str) -> Iterator[object]:
            walk = croniter(expression, BEGIN.astimezone(ZoneInfo(zone)))
            while True:
                yield walk.get_next(datetime)

        found["croniter"] = walk_croniter
    if importlib.util.find_spec("apscheduler"):
        from apscheduler.triggers.cron import CronTrigger

        def walk_apscheduler(expression: str, zone: str) -> Iterator[object]:
            trigger, previous = CronTrigger.from_crontab(expression, zone), None
            now = BEGIN
            while True:
                previous = trigger.get_next_fire_time(previous, now)
                now = previous
                yield previous

        found["apscheduler"] = walk_apscheduler
    return found


def seconds(walk: Iterator[object], number: int) -> float:
    began = time.perf_counter()
    for _ in islice(walk, number):
        pass
    return time.perf_counter() - began


def rates() -> list[dict[str, object]]:
    """Give the fires a second of each engine, best of some rounds in turn, and simrun's ratio to cronsim."""
    rows = []
    for zone in ZONES:
        for expression in EXPRESSIONS:
            took = {name: [] for name in engines()}
            for _ in range(ROUNDS):
                for name, walk in engines().items():
                    took[name].append(seconds(walk(expression, zone), FIRES))
            rate = {name: round(FIRES / min(times)) for name, times in took.items()}
            row: dict[str, object] = {"expression": expression, "zone": zone, "per_second": rate}
            if "cronsim" in rate:
                row["to_cronsim"] = round(rate["simrun"] / rate["cronsim"], 1)
            rows.append(row)
    return rows


def worst() -> dict[str, object]:
    """Give the milliseconds of single answers that have far to look, medians and greatest of different instants."""
    found: dict[str, object] = {}
    for name, expression in (("29 February", "0 0 29 2 *"), ("never", "0 0 31 2 *")):
        took = []
        for year in range(1900, 2300):
            timetable = parse(expression, "Europe/Berlin")
            instant = BEGIN.replace(year=year, month=3)
            began = time.perf_counter()
            timetable.next_after(instant)
            took.append((time.perf_counter() - began) * 1e3)
        found[name] = {
            "median_ms": round(statistics.median(took), 4),
            "p99_ms": round(statistics.quantiles(took, n=100)[98], 4),
            "within": statistics.quantiles(took, n=100)[98] <= SLOWEST_MS,
        }
    return found


def many() -> dict[str, float]:
    """Give the seconds for 10,000 different schedules in UTC, ten fires a day each."""
    texts = [f"{number % 60} {number % 5}-{number % 5 + 9} * * *" for number in range(SCHEDULES)]
    began = time.perf_counter()
    timetables = [parse(text) for text in texts]
    parsed = time.perf_counter()
    for timetable in timetables:
        timetable.next_after(BEGIN)
    asked = time.perf_counter()
    end = BEGIN + timedelta(days=1)
    for timetable in timetables:
        for _ in timetable.instants(BEGIN, end):
            pass
    walked = time.perf_counter()
    return {
        "parse_s": round(parsed - began, 3),
        "next_s": round(asked - parsed, 3),
        "one_day_s": round(walked - asked, 3),
    }


def centuries() -> dict[str, float]:
    """Give the milliseconds to count the minutes up to the year 2200."""
    timetable = parse("* * * * *", "Europe/Berlin")
    began = time.perf_counter()
    timetable.count(BEGIN, BEGIN.replace(year=2200))
    return {"count_to_2200_ms": round((time.perf_counter() - began) * 1e3, 1)}


def robfig() -> dict[str, int] | str:
    """Give the fires a second of robfig/cron in UTC."""
    if shutil.which("go") is None:
        return "there is no Go here"
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "main.go").write_text(GO)
        Path(directory, "go.mod").write_text(
            "module bench\n\ngo 1.21\n\nrequire github.com/robfig/cron/v3 v3.0.1\n"
        )
        for command in (["go", "mod", "tidy"], ["go", "build", "-o", "bench", "."]):
            subprocess.run(command, cwd=directory, check=True, capture_output=True)
        ran = subprocess.run(
            [f"{directory}/bench", *EXPRESSIONS], stdout=subprocess.PIPE, text=True, check=True
        )
    return dict(zip(EXPRESSIONS, map(int, ran.stdout.split()), strict=True))


def main() -> None:
    table = rates()
    ratios = [row["to_cronsim"] for row in table if "to_cronsim" in row]
    result: dict[str, object] = {
        "rates": table,
        "least_ratio_to_cronsim": min(ratios) if ratios else "cronsim is not installed",
        "target_ratio": TARGET_RATIO,
        "worst": worst(),
        "schedules_10000": many(),
        **centuries(),
    }
    if "--go" in sys.argv[1:]:
        result["robfig_per_second"] = robfig()
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
