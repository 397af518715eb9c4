"""The functions that workflow.yaml names. They need nothing but Python."""

import csv
import random
import statistics


def walk(unit):
    """One unit: many walkers with the same drift. What is returned is kept as the unit's result."""
    dice = random.Random(unit.seed)
    drift, steps = unit.params["drift"], unit.params["steps"]
    ends = []
    for _ in range(unit.params["walkers"]):
        # How often of `steps` steps it went right, the rest it went left
        right = sum(dice.random() < 0.5 + drift / 2 for _ in range(steps))
        ends.append(2 * right - steps)
    with open(unit.out / "ends.csv", "w", newline="") as file:
        csv.writer(file).writerows([end] for end in ends)
    print(f"drift {drift}: {len(ends)} walkers")  # goes to the log: simrun logs RUN walks
    return {"mean": statistics.fmean(ends), "spread": statistics.pstdev(ends)}


def summarise(merge):
    """All units together: a table with a line for each, written below merge.out."""
    with open(merge.out / "summary.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["unit", "drift", "replicate", "mean", "spread"])
        for unit in merge.units:
            table.writerow(
                [
                    unit.index,
                    unit.params["drift"],
                    unit.params["replicate"],
                    unit.result["mean"],
                    unit.result["spread"],
                ]
            )
    print(f"{len(merge.units)} units, {len(merge.failed)} failed")
