"""The functions of examples/stability-map, on a grid small enough for a test."""

import csv
import importlib.util
import json
import math
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

EXAMPLE = Path(__file__).parents[2] / "examples" / "stability-map"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"stability_map_{name}", EXAMPLE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


stability = load("stability")
summary = load("summary")

INPUTS = {"system": EXAMPLE / "system.json"}
WORKFLOW = yaml.safe_load((EXAMPLE / "workflow.yaml").read_text(encoding="utf-8"))
PARAMS: dict[str, Any] = WORKFLOW["types"]["stability"]["params"]
TINY = PARAMS | {"rows": 6, "columns": 5, "rows_per_tile": 4, "years": 300}


@pytest.fixture
def system() -> Any:
    return stability.System.read(INPUTS["system"])


def compute(out: Path, params: dict[str, Any]) -> list[SimpleNamespace]:
    """Compute every unit of a map one after the other, as done units of a merge."""
    units = []
    for index, row in enumerate(stability.tiles(params, INPUTS)):
        unit = SimpleNamespace(
            index=index, params=params | row, inputs=INPUTS, out=out / str(index)
        )
        unit.out.mkdir(parents=True)
        unit.result = stability.compute_tile(unit)
        units.append(unit)
    return units


def merge(
    out: Path, params: dict[str, Any], units: list[SimpleNamespace], failed: tuple[Any, ...] = ()
) -> dict[str, Any]:
    out.mkdir(parents=True)
    task = SimpleNamespace(units=units, failed=list(failed), params=params, inputs=INPUTS, out=out)
    result: dict[str, Any] = stability.merge_tiles(task)
    return result


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A computed and merged tiny map: units, out, result."""
    root = tmp_path_factory.mktemp("tiny")
    units = compute(root / "units", TINY)
    return SimpleNamespace(units=units, out=root / "out", result=merge(root / "out", TINY, units))


# --- the physics


@pytest.mark.parametrize(
    ("name", "position"),
    [
        # Heliocentric, ecliptic of J2000, au: check values of the VSOP87A theory, which shares nothing with the table.
        ("Jupiter", (4.0011740268, 2.9385810077, -0.1017837501)),
        ("Saturn", (6.4064068573, 6.5699929449, -0.3690768029)),
    ],
)
def test_the_elements_put_each_planet_where_an_independent_theory_has_it_at_j2000(
    system: Any, name: str, position: tuple[float, float, float]
) -> None:
    body = system.planet(name)
    sim = stability.simulation(system, name, body.semi_major_axis_au, body.eccentricity)

    particle = sim.particles[1 + [planet.name for planet in system.planets].index(name)]

    # The table promises 400 and 600 arc seconds: 0.010 and 0.026 au.
    assert math.dist((particle.x, particle.y, particle.z), position) < 0.03


def test_the_real_saturn_is_regular(system: Any) -> None:
    saturn = system.planet("Saturn")

    megno = stability.integrate(
        system, stability.Settings.of(PARAMS), saturn.semi_major_axis_au, saturn.eccentricity
    )

    assert megno == pytest.approx(2, abs=0.1)


def test_megno_of_a_chaotic_orbit_grows_with_time_and_that_of_a_regular_one_does_not(
    system: Any,
) -> None:
    short, long = (stability.Settings.of(PARAMS | {"years": years}) for years in (1000, 2000))

    chaotic = [stability.integrate(system, settings, 8.8, 0.3) for settings in (short, long)]
    regular = [stability.integrate(system, settings, 10.4, 0.05) for settings in (short, long)]

    assert chaotic[0] > 4
    assert chaotic[1] > 1.4 * chaotic[0]
    assert regular == pytest.approx([2, 2], abs=0.1)


def test_an_eccentric_planet_near_jupiter_is_lost(system: Any) -> None:
    assert stability.integrate(system, stability.Settings.of(PARAMS), 7.3, 0.4) == math.inf


def test_a_planet_that_flies_off_is_lost(system: Any) -> None:
    settings = stability.Settings.of(PARAMS | {"e_max": 0.2, "escape_au": 15})

    assert stability.integrate(system, settings, 10.0, 0.6) == math.inf


def test_the_hill_radius_of_jupiter_is_a_third_of_an_au(system: Any) -> None:
    assert stability.hill_radius(system.planet("Jupiter"), 1.0) == pytest.approx(0.355, abs=0.001)


# --- the units


def test_the_workflow_cuts_the_map_into_eighteen_tiles_that_cover_it() -> None:
    rows = stability.tiles(PARAMS, INPUTS)

    assert len(rows) == 18
    covered = [k for row in rows for k in range(row["row_start"], row["row_stop"])]
    assert covered == list(range(PARAMS["rows"]))


def test_the_last_tile_is_smaller_when_the_rows_do_not_divide() -> None:
    assert stability.tiles(TINY, INPUTS) == [
        {"row_start": 0, "row_stop": 4},
        {"row_start": 4, "row_stop": 6},
    ]


def test_a_tile_holds_its_rows_and_the_result_counts_them(tiny: SimpleNamespace) -> None:
    tile = np.load(tiny.units[0].out / "tile.npy")

    assert tile.shape == (4, 5)
    assert tile.dtype == np.float64
    kept = tile[np.isfinite(tile)]
    assert tiny.units[0].result == {
        "integrations": 20,
        "lost": 20 - kept.size,
        "megno_min": kept.min(),
        "megno_mean": kept.mean(),
        "megno_max": kept.max(),
    }


def test_a_tile_without_a_stable_orbit_has_no_megno() -> None:
    assert stability.numbers(np.full((2, 3), math.inf)) == {
        "integrations": 6,
        "lost": 6,
        "megno_min": None,
        "megno_mean": None,
        "megno_max": None,
    }


FRESH = """
import sys
from pathlib import Path
from types import SimpleNamespace
sys.path.insert(0, sys.argv[1])
import stability
params = dict(eval(sys.argv[2]))
inputs = {"system": Path(sys.argv[1]) / "system.json"}
stability.tiles(params, inputs)
assert not {"numpy", "rebound"} & sys.modules.keys(), "tiles imports what it has no need of"
stability.compute_tile(SimpleNamespace(params=params, inputs=inputs, out=Path(sys.argv[3])))
assert "matplotlib" not in sys.modules, "each tile pays for an import only the merge needs"
"""


def test_a_fresh_process_gives_the_same_bytes_and_imports_only_what_it_needs(
    tiny: SimpleNamespace, tmp_path: Path
) -> None:
    unit = tiny.units[1]

    subprocess.run(
        [sys.executable, "-c", FRESH, str(EXAMPLE), repr(unit.params), str(tmp_path)], check=True
    )

    assert (tmp_path / "tile.npy").read_bytes() == (unit.out / "tile.npy").read_bytes()


# --- the merge


@pytest.mark.parametrize("rows_per_tile", [1, 3, 6])
def test_the_map_is_the_same_byte_for_byte_however_it_was_cut_and_in_any_order(
    tiny: SimpleNamespace, tmp_path: Path, rows_per_tile: int
) -> None:
    params = TINY | {"rows_per_tile": rows_per_tile}
    units = compute(tmp_path / "units", params)

    merge(tmp_path / "out", params, units[::-1])

    assert (tmp_path / "out" / "map.npy").read_bytes() == (tiny.out / "map.npy").read_bytes()


def test_merging_again_gives_the_same_files(tiny: SimpleNamespace, tmp_path: Path) -> None:
    merge(tmp_path / "out", TINY, tiny.units)

    names = sorted(path.name for path in tiny.out.iterdir())
    assert names == ["grid.json", "map.npy", "map.png", "table.csv"]
    for name in names:
        assert (tmp_path / "out" / name).read_bytes() == (tiny.out / name).read_bytes()


def test_the_table_has_a_line_for_each_tile_and_adds_up_to_the_map(tiny: SimpleNamespace) -> None:
    with (tiny.out / "table.csv").open(newline="", encoding="utf-8") as file:
        table = list(csv.DictReader(file))

    assert [(line["row_start"], line["row_stop"]) for line in table] == [("0", "4"), ("4", "6")]
    assert sum(int(line["integrations"]) for line in table) == tiny.result["integrations"] == 30
    assert sum(int(line["lost"]) for line in table) == tiny.result["lost"] > 0
    assert float(table[1]["e_last"]) == PARAMS["e_max"]


def test_the_picture_is_a_png_of_a_size_to_look_at(tiny: SimpleNamespace) -> None:
    data = (tiny.out / "map.png").read_bytes()

    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = int.from_bytes(data[16:20]), int.from_bytes(data[20:24])
    assert width >= 1000
    assert height >= 600


def test_a_map_without_a_single_stable_orbit_is_drawn_too(system: Any, tmp_path: Path) -> None:
    settings = stability.Settings.of(TINY)

    stability.draw(np.full((6, 5), math.inf), settings, system, tmp_path / "dark.png")

    assert (tmp_path / "dark.png").stat().st_size > 0


def test_a_missing_tile_is_refused_with_its_rows_and_the_reason(
    tiny: SimpleNamespace, tmp_path: Path
) -> None:
    failed = SimpleNamespace(index=1, key="1", params=tiny.units[1].params, reason="exit code 3")

    with pytest.raises(
        ValueError, match=r"rows \[4, 5\] are in no tile; unit 1 failed: exit code 3"
    ):
        merge(tmp_path / "out", TINY, tiny.units[:1], failed=(failed,))


def test_a_doubled_tile_is_refused(tiny: SimpleNamespace, tmp_path: Path) -> None:
    again = SimpleNamespace(**vars(tiny.units[1]) | {"index": 2})

    with pytest.raises(ValueError, match="row 4 is in two tiles: units 1 and 2"):
        merge(tmp_path / "out", TINY, [*tiny.units, again])


def test_a_tile_outside_of_the_map_is_refused(tiny: SimpleNamespace, tmp_path: Path) -> None:
    beyond = SimpleNamespace(index=2, params={"row_start": 6, "row_stop": 7}, out=tmp_path)

    with pytest.raises(ValueError, match=r"unit 2 has row 6; the map has 0\.\.5"):
        merge(tmp_path / "out", TINY, [*tiny.units, beyond])


def test_a_tile_of_another_shape_is_refused(tiny: SimpleNamespace, tmp_path: Path) -> None:
    np.save(tmp_path / "tile.npy", np.zeros((2, 4)))
    narrow = SimpleNamespace(**vars(tiny.units[1]) | {"out": tmp_path})

    with pytest.raises(ValueError, match=r"tile\.npy of unit 1 is float64 \(2, 4\)"):
        merge(tmp_path / "out", TINY, [tiny.units[0], narrow])


# --- the summary


def summarise(out: Path, values: Any, grid: dict[str, Any]) -> dict[str, Any]:
    np.save(out / "map.npy", values)
    (out / "grid.json").write_text(json.dumps(grid), encoding="utf-8")
    inputs = {"map": out / "map.npy", "grid": out / "grid.json"}
    result: dict[str, Any] = summary.summarise(SimpleNamespace(inputs=inputs, out=out))
    assert json.loads((out / "summary.json").read_text(encoding="utf-8")) == result
    return result


GRID = {
    "planet": "Saturn",
    "a_au": [9.0, 9.5, 10.0],
    "e": [0.0, 0.1, 0.2, 0.3],
    "stable_below": 2.5,
    "real_a_au": 9.6,
    "real_e": 0.06,
}


def test_the_summary_counts_cells_and_looks_the_real_orbit_up(tmp_path: Path) -> None:
    values = np.full((4, 3), 2.0)
    values[1, 1] = 2.25
    values[2, 1] = 7.0
    values[3] = math.inf

    assert summarise(tmp_path, values, GRID) == {
        "planet": "Saturn",
        "orbits": 12,
        "stable_share": pytest.approx(8 / 12),
        "chaotic_share": pytest.approx(1 / 12),
        "lost_share": pytest.approx(3 / 12),
        "real_orbit": "stable",
        "real_orbit_megno": 2.25,
        "stable_up_to_e": 0.1,
    }


def test_the_summary_of_a_map_without_the_real_orbit_says_none(tmp_path: Path) -> None:
    result = summarise(tmp_path, np.full((4, 3), 2.0), GRID | {"real_a_au": 12.0})

    assert result["stable_share"] == 1
    assert result["real_orbit"] is None
    assert result["real_orbit_megno"] is None
    assert result["stable_up_to_e"] is None


@pytest.mark.parametrize(
    ("column", "state", "megno", "limit"),
    [
        ([math.inf] * 4, "lost", None, None),
        ([2.0, 9.0, 9.0, 9.0], "chaotic", 9.0, 0.0),
        ([2.0, 2.0, 2.0, 2.0], "stable", 2.0, 0.3),
    ],
)
def test_the_summary_names_the_state_of_the_real_orbit(
    tmp_path: Path, column: list[float], state: str, megno: float | None, limit: float | None
) -> None:
    values = np.full((4, 3), 2.0)
    values[:, 1] = column

    result = summarise(tmp_path, values, GRID)

    assert (result["real_orbit"], result["real_orbit_megno"]) == (state, megno)
    assert result["stable_up_to_e"] == limit


def test_the_summary_reads_what_the_merge_wrote(tiny: SimpleNamespace, tmp_path: Path) -> None:
    inputs = {"map": tiny.out / "map.npy", "grid": tiny.out / "grid.json"}

    result = summary.summarise(SimpleNamespace(inputs=inputs, out=tmp_path))

    assert result["orbits"] == tiny.result["integrations"]
    assert result["lost_share"] == pytest.approx(tiny.result["lost"] / 30)
    assert result["real_orbit"] == "stable"


# --- bad input


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": 1}, "rows is 1; it must be at least 2"),
        ({"rows_per_tile": 0}, "rows_per_tile is 0; it must be at least 1"),
        ({"a_max_au": 6.5}, "a_max_au is 6.5; it must be above a_min_au"),
        ({"e_max": 1.0}, "e_max is 1.0; it must be below 1"),
        ({"years": 0}, "years is 0; it must be above 0"),
        ({"escape_au": 12}, "escape_au is 12; it must be beyond every orbit"),
        ({"seed": -1}, "seed is -1; it must be from 0"),
        ({"columns": "128"}, "columns is '128'; it must be of type int"),
        ({"rows": True}, "rows is True; it must be of type int"),
        ({"planet": 6}, "planet is 6; it must be of type str"),
    ],
)
def test_a_bad_parameter_is_named_with_its_value_and_what_it_must_be(
    change: dict[str, Any], message: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        stability.tiles(PARAMS | change, INPUTS)


def test_a_missing_parameter_is_named() -> None:
    with pytest.raises(ValueError, match="parameter 'years' is missing"):
        stability.tiles({key: value for key, value in PARAMS.items() if key != "years"}, INPUTS)


def test_a_time_step_too_long_for_the_shortest_period_is_refused(system: Any) -> None:
    settings = stability.Settings.of(PARAMS | {"step_years": 0.6})

    with pytest.raises(ValueError, match=r"step_years is 0\.6; it must be at most 0\.593"):
        stability.check_step(system, settings)


def test_a_planet_that_the_system_has_not_is_refused_with_those_it_has(system: Any) -> None:
    with pytest.raises(ValueError, match="planet is 'Vulcan'; the system has Jupiter, Saturn"):
        system.planet("Vulcan")


def test_a_lone_planet_is_refused(system: Any) -> None:
    alone = stability.System(1.0, system.planets[1:])

    with pytest.raises(ValueError, match="a planet besides 'Saturn'"):
        alone.perturber("Saturn")


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"eccentricity": None}, "'eccentricity' of Jupiter is missing"),
        ({"mass": 1}, "'mass' of Jupiter is not known"),
    ],
)
def test_a_wrong_field_of_the_system_file_is_named(
    tmp_path: Path, edit: dict[str, Any], message: str
) -> None:
    data = json.loads(INPUTS["system"].read_text(encoding="utf-8"))
    planet = data["planets"][0] | edit
    data["planets"][0] = {key: value for key, value in planet.items() if value is not None}
    path = tmp_path / "system.json"
    path.write_text(json.dumps(data), encoding="utf-8")

    with pytest.raises(ValueError, match=message):
        stability.System.read(path)
