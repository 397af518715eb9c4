"""Which orbits could a planet have? The functions that workflow.yaml names.

Each cell of the map is one integration of the whole system, with the chosen planet moved to that cell's semi-major
axis and eccentricity. What is kept is MEGNO, the mean exponential growth of nearby orbits: it settles at 2 for a
regular orbit and grows with time for a chaotic one. A cell depends on nothing but the parameters and the system file:
not on the tile it is in, on who computes it, or how often. So the map is the same, byte for byte, however the tiles
were shared out and whichever worker died.

numpy, rebound and matplotlib are imported where they are used: every tile runs in a fresh process, and `tiles` needs
none of them.
"""

from __future__ import annotations

import csv
import json
import math
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Map = npt.NDArray[np.float64]

YEAR = 2 * math.pi
"""A year in units in which G, the solar mass and the astronomical unit are 1."""

LOST = math.inf
"""Stands in the map where the planet did not stay: it left the system or met another body."""

STEPS_PER_ORBIT = 20
"""The symplectic integrator is not to be trusted with fewer steps in the shortest period."""


@dataclass(frozen=True, slots=True)
class Body:
    """One planet of system.json: mass over that of the Sun, elements in au and degrees."""

    name: str
    sun_mass_ratio: float
    semi_major_axis_au: float
    eccentricity: float
    inclination_deg: float
    mean_longitude_deg: float
    longitude_of_perihelion_deg: float
    longitude_of_ascending_node_deg: float

    @property
    def mass(self) -> float:
        """Mass in solar masses."""
        return 1 / self.sun_mass_ratio


@dataclass(frozen=True, slots=True)
class System:
    """A star, by its mass in solar masses, and its planets."""

    star_mass: float
    planets: tuple[Body, ...]

    @classmethod
    def read(cls, path: Path) -> System:
        """Read system.json; a planet with a missing or an unknown field raises ValueError."""
        data = json.loads(path.read_text(encoding="utf-8"))
        known = {f.name for f in fields(Body)}
        for planet in data["planets"]:
            if wrong := sorted(known ^ planet.keys()):
                problem = "is missing" if wrong[0] in known else "is not known"
                raise ValueError(f"{path.name}: {wrong[0]!r} of {planet.get('name')} {problem}")
        planets = tuple(Body(**planet) for planet in data["planets"])
        return cls(float(data["star"]["mass_msun"]), planets)

    def planet(self, name: str) -> Body:
        """Give a planet by its name."""
        for body in self.planets:
            if body.name == name:
                return body
        names = ", ".join(body.name for body in self.planets)
        raise ValueError(f"planet is {name!r}; the system has {names}")

    def perturber(self, moved: str) -> Body:
        """Give the most massive planet besides the moved one."""
        others = [body for body in self.planets if body.name != moved]
        if not others:
            raise ValueError(f"the system must have a planet besides {moved!r}")
        return max(others, key=lambda body: body.mass)


@dataclass(frozen=True, slots=True)
class Settings:
    """The parameters of the map, as workflow.yaml explains them."""

    planet: str
    rows: int
    columns: int
    rows_per_tile: int
    a_min_au: float
    a_max_au: float
    e_min: float
    e_max: float
    years: float
    step_years: float
    escape_au: float
    stable_below: float
    seed: int
    a_au: tuple[float, ...] = field(init=False)
    """Semi-major axis of each column."""
    e: tuple[float, ...] = field(init=False)
    """Eccentricity of each row."""

    def __post_init__(self) -> None:
        for f in fields(self):
            kind = {"int": int, "float": int | float, "str": str}[str(f.type)] if f.init else object
            value = getattr(self, f.name, None)
            if not isinstance(value, kind) or isinstance(value, bool):
                raise TypeError(f"{f.name} is {value!r}; it must be of type {f.type}")
        self._check_ranges()
        object.__setattr__(self, "a_au", _evenly(self.a_min_au, self.a_max_au, self.columns))
        object.__setattr__(self, "e", _evenly(self.e_min, self.e_max, self.rows))

    def _check_ranges(self) -> None:
        a, e = (self.a_min_au, self.a_max_au), (self.e_min, self.e_max)
        checks = {
            "rows": (self.rows >= 2, "at least 2"),
            "columns": (self.columns >= 2, "at least 2"),
            "rows_per_tile": (self.rows_per_tile >= 1, "at least 1"),
            "a_max_au": (0 < a[0] < a[1], f"above a_min_au, and that above 0, not {a[0]}"),
            "e_max": (
                0 <= e[0] < e[1] < 1,
                f"below 1 and above e_min, and that not below 0, not {e[0]}",
            ),
            "years": (self.years > 0, "above 0"),
            "step_years": (self.step_years > 0, "above 0"),
            "escape_au": (self.escape_au > a[1] * (1 + e[1]), "beyond every orbit of the map"),
            "stable_below": (self.stable_below > 2, "above 2, where regular orbits settle"),
            "seed": (0 <= self.seed < 2**32, "from 0 up to below 2^32"),
        }
        for name, (good, must) in checks.items():
            if not good:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be {must}")

    @classmethod
    def of(cls, params: dict[str, Any]) -> Settings:
        """Take what belongs to the map out of a task's or unit's parameters."""
        names = [f.name for f in fields(cls) if f.init]
        if missing := [name for name in names if name not in params]:
            raise ValueError(f"parameter {missing[0]!r} is missing; workflow.yaml explains it")
        return cls(**{name: params[name] for name in names})


def _evenly(first: float, last: float, count: int) -> tuple[float, ...]:
    return tuple(first + (last - first) * k / (count - 1) for k in range(count))


# --- the units ---------------------------------------------------------------------------------------------------------


def tiles(params: dict[str, Any], inputs: dict[str, Path]) -> list[dict[str, int]]:
    """Cut the rows of the map into blocks; a block is the half-open range row_start..row_stop."""
    settings = Settings.of(params)
    rows, height = settings.rows, settings.rows_per_tile
    return [{"row_start": k, "row_stop": min(k + height, rows)} for k in range(0, rows, height)]


def compute_tile(unit: Any) -> dict[str, int | float | None]:
    """Compute the rows of one unit; write tile.npy, float64, (row_stop - row_start, columns)."""
    import numpy as np

    settings = Settings.of(unit.params)
    system = System.read(unit.inputs["system"])
    check_step(system, settings)
    rows = range(unit.params["row_start"], unit.params["row_stop"])
    tile = np.empty((len(rows), settings.columns))
    for k, row in enumerate(rows):
        e = settings.e[row]
        tile[k] = [integrate(system, settings, a_au, e) for a_au in settings.a_au]
        lost = int(np.isinf(tile[k]).sum())
        print(f"row {row}: e = {e:.3f}, {settings.columns} orbits, {lost} lost", flush=True)
    np.save(unit.out / "tile.npy", tile)
    return numbers(tile)


def check_step(system: System, settings: Settings) -> None:
    """Refuse a time step that is too long for the shortest period in the map."""
    orbits = [body.semi_major_axis_au for body in system.planets if body.name != settings.planet]
    period = min([*orbits, settings.a_min_au]) ** 1.5 / math.sqrt(system.star_mass)
    if settings.step_years > period / STEPS_PER_ORBIT:
        raise ValueError(
            f"step_years is {settings.step_years}; it must be at most {period / STEPS_PER_ORBIT:.3g}, "
            f"since the shortest period in the map is {period:.3g} years"
        )


def integrate(system: System, settings: Settings, a_au: float, e: float) -> float:
    """Integrate the system with the planet on the orbit (a_au, e) and give MEGNO, or LOST.

    The planet is lost beyond escape_au, and nearer to another body than the perturber's Hill radius: what a fixed
    time step makes of such a meeting is not to be trusted, and no orbit with one is stable.
    """
    import rebound

    sim = simulation(system, settings.planet, a_au, e)
    sim.integrator = "whfast"
    sim.dt = settings.step_years * YEAR
    sim.exit_max_distance = settings.escape_au
    sim.exit_min_distance = hill_radius(system.perturber(settings.planet), system.star_mass)
    sim.move_to_com()
    # One tangent vector for all cells: the unit's own seed would tie the map to how it was cut.
    sim.init_megno(seed=settings.seed)
    try:
        # Whole steps only: a last, shorter one would not be symplectic.
        sim.integrate(settings.years * YEAR, exact_finish_time=0)
    except (rebound.Escape, rebound.Encounter):
        return LOST
    megno: float = sim.megno()
    return megno


def simulation(system: System, moved: str, a_au: float, e: float) -> Any:
    """Set up star and planets, around the star at rest, the moved planet with the given a and e."""
    import rebound

    sim = rebound.Simulation()
    sim.add(m=system.star_mass)
    for body in system.planets:
        own = body.name == moved
        sim.add(
            primary=sim.particles[0],
            m=body.mass,
            a=a_au if own else body.semi_major_axis_au,
            e=e if own else body.eccentricity,
            inc=math.radians(body.inclination_deg),
            l=math.radians(body.mean_longitude_deg),
            pomega=math.radians(body.longitude_of_perihelion_deg),
            Omega=math.radians(body.longitude_of_ascending_node_deg),
        )
    return sim


def hill_radius(body: Body, star_mass: float) -> float:
    """Give the distance in au up to which a planet's pull outweighs the star's tide."""
    return body.semi_major_axis_au * (body.mass / (3 * star_mass)) ** (1 / 3)


def numbers(values: Map) -> dict[str, int | float | None]:
    """Count the orbits and the lost ones; give MEGNO's range and mean of the rest, None if there is none."""
    import numpy as np

    kept = values[np.isfinite(values)]
    return {
        "integrations": int(values.size),
        "lost": int(values.size - kept.size),
        "megno_min": float(kept.min()) if kept.size else None,
        "megno_mean": float(kept.mean()) if kept.size else None,
        "megno_max": float(kept.max()) if kept.size else None,
    }


# --- the merge ---------------------------------------------------------------------------------------------------------


def merge_tiles(merge: Any) -> dict[str, int | float | None]:
    """Put the tiles together: map.npy (float64, (rows, columns)), map.png, table.csv, grid.json."""
    import numpy as np

    settings = Settings.of(merge.params)
    system = System.read(merge.inputs["system"])
    check_cover(merge, settings.rows)
    whole = np.empty((settings.rows, settings.columns))
    table = []
    for unit in merge.units:
        first, stop = unit.params["row_start"], unit.params["row_stop"]
        tile = np.load(unit.out / "tile.npy", allow_pickle=False)
        if tile.shape != (stop - first, settings.columns) or tile.dtype != np.float64:
            found = f"{tile.dtype} {tile.shape}"
            raise ValueError(
                f"tile.npy of unit {unit.index} is {found}, but has rows {first}..{stop - 1}"
            )
        whole[first:stop] = tile
        place = {"tile": unit.index, "row_start": first, "row_stop": stop}
        span = {"e_first": settings.e[first], "e_last": settings.e[stop - 1]}
        table.append({**place, **span, **numbers(tile)})
    np.save(merge.out / "map.npy", whole)
    write_table(table, merge.out / "table.csv")
    real = system.planet(settings.planet)
    orbit = {"real_a_au": real.semi_major_axis_au, "real_e": real.eccentricity}
    grid = json.dumps(asdict(settings) | orbit, indent=1)
    (merge.out / "grid.json").write_text(grid + "\n", encoding="utf-8")
    draw(whole, settings, system, merge.out / "map.png")
    return numbers(whole)


def write_table(table: list[dict[str, int | float | None]], path: Path) -> None:
    """Write rows with the same keys as csv."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(table[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)


def check_cover(merge: Any, rows: int) -> None:
    """Refuse tiles that do not cover the rows 0..rows-1 exactly once; say which row, and why."""
    owner: dict[int, int] = {}
    for unit in merge.units:
        for row in range(unit.params["row_start"], unit.params["row_stop"]):
            if not 0 <= row < rows:
                raise ValueError(f"unit {unit.index} has row {row}; the map has 0..{rows - 1}")
            if row in owner:
                raise ValueError(f"row {row} is in two tiles: units {owner[row]} and {unit.index}")
            owner[row] = unit.index
    if missing := [row for row in range(rows) if row not in owner]:
        failed = ", ".join(f"unit {unit.index} failed: {unit.reason}" for unit in merge.failed)
        raise ValueError(f"rows {missing} are in no tile" + (f"; {failed}" if failed else ""))


# --- the picture -------------------------------------------------------------------------------------------------------

COLOURS = (
    (0.00, "#0b3c6f"),
    (0.22, "#3f8fbf"),
    (0.30, "#a9d3e3"),
    (0.42, "#fdf3d0"),
    (0.62, "#f6a54a"),
    (0.82, "#c8361f"),
    (1.00, "#5c0a12"),
)
"""Place on the scale of `megno_norm` and colour: regular orbits cool, chaotic ones warm."""

LOST_COLOUR = "#26262e"

RESONANCES = ((3, 2), (5, 3), (2, 1), (7, 3), (5, 2), (8, 3), (3, 1), (10, 3), (7, 2), (4, 1))
"""Ratios of the two periods that are marked on the upper edge, the longer one first."""


def draw(values: Map, settings: Settings, system: System, path: Path) -> None:
    """Draw the map as a PNG, with the resonances of the perturber and the planet's real orbit."""
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    planet, perturber = system.planet(settings.planet), system.perturber(settings.planet)
    colours = LinearSegmentedColormap.from_list("stability", COLOURS).with_extremes(bad=LOST_COLOUR)
    figure = Figure(figsize=(9.6, 6.0), layout="constrained")
    FigureCanvasAgg(figure)  # needs no display, and no pyplot with its global state
    axes = figure.add_subplot()
    kept = np.ma.masked_invalid(values)
    top = max(10.0, 2 * settings.stable_below, float(kept.max()) if kept.count() else 0.0)
    image = axes.imshow(
        kept,
        origin="lower",
        aspect="auto",
        interpolation="nearest",
        extent=(*cell_edges(settings.a_au), *cell_edges(settings.e)),
        cmap=colours,
        norm=megno_norm(settings.stable_below, top),
    )
    bar = figure.colorbar(image, ax=axes, extend="min", pad=0.015)
    ticks = [
        t
        for t in (1.8, 2.0, settings.stable_below, 5.0, 10.0, 20.0, 50.0, 100.0, 1000.0)
        if t <= top
    ]
    bar.set_ticks(ticks, labels=[f"{tick:g}" for tick in ticks])
    bar.set_label(
        f"MEGNO after {settings.years:,.0f} years   (regular: 2, chaotic: grows with time)"
    )
    star = axes.scatter(
        planet.semi_major_axis_au,
        planet.eccentricity,
        marker="*",
        s=260,
        c="#ffd21f",
        edgecolors="black",
        label=f"the real {planet.name}",
    )
    axes.set(xlim=cell_edges(settings.a_au), ylim=cell_edges(settings.e))
    axes.set_xlabel(f"semi-major axis of {planet.name}  [au]")
    axes.set_ylabel(f"eccentricity of {planet.name}")
    figure.suptitle(f"Which orbits could {planet.name} have?", fontsize=15)
    lost = Patch(facecolor=LOST_COLOUR, label=f"lost: met {perturber.name}, or left the system")
    axes.legend(handles=[star, lost], loc="upper left", framealpha=0.95)
    mark_resonances(axes, planet, perturber)
    figure.savefig(path, dpi=125)


def cell_edges(axis: tuple[float, ...]) -> tuple[float, float]:
    """Give where the first cell begins and the last one ends; the values of an axis are the middles."""
    half = (axis[1] - axis[0]) / 2
    return axis[0] - half, axis[-1] + half


def megno_norm(stable_below: float, top: float) -> Any:
    """Give a logarithmic scale up to `top` that keeps 0.44 of its length for what is below `stable_below`."""
    import numpy as np
    from matplotlib.colors import FuncNorm

    bottom = 1.7
    levels = np.log([bottom, 2.0, stable_below, top])
    places = [0.0, 0.28, 0.44, 1.0]

    def to_place(megno: Any) -> Any:
        place = np.interp(np.log(np.maximum(megno, bottom / 2)), levels, places)
        return np.ma.masked_array(place, mask=np.ma.getmaskarray(megno))  # interp drops the mask

    def to_megno(place: Any) -> Any:
        return np.exp(np.interp(place, places, levels))

    return FuncNorm((to_place, to_megno), vmin=bottom, vmax=top)


def mark_resonances(axes: Any, planet: Body, perturber: Body) -> None:
    """Mark on the upper edge where both periods are as small whole numbers, by Kepler's third law."""
    left, right = axes.get_xlim()
    ratios = [*RESONANCES, *((q, p) for p, q in RESONANCES)]
    places = [(perturber.semi_major_axis_au * (p / q) ** (2 / 3), f"{p}:{q}") for p, q in ratios]
    shown = [(a_au, label) for a_au, label in places if left < a_au < right]
    top = axes.secondary_xaxis("top")
    top.set_xticks([a_au for a_au, _ in shown], labels=[label for _, label in shown])
    top.tick_params(labelsize=9)
    top.set_xlabel(f"period of {planet.name} : period of {perturber.name}", fontsize=9)
