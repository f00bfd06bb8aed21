"""Commands name runs, and runs have the command that names them."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagnn.experiments.cells import Cell
from dagnn.experiments.records import Record
from dagnn.experiments.registry import NAMES, PRESETS, best_rates, make_entry
from dagnn.experiments.selection import Selection
from dagnn.experiments.views import view_entry
from dagnn.tasks.code_protocol import LEARNING_RATES
from tests.experiments.fake_records import latent_metrics, make_record

METRICS = {
    **latent_metrics([0.3], [0.9]), "test_f1": 0.1, "test_accuracy": 0.2, "valid_f1": 0.1,
    "valid_accuracy": 0.2, "score": -11.0, "mean": 9.0, "Node2Token": 0.1, "TargetInGraph": 0.2,
    "MajorityInValid": 0.3,
}  # fmt: skip
places = st.sampled_from(
    [(name, preset, i) for preset in PRESETS for name in NAMES
     for i in range(len(make_entry(name, preset).places))]
)  # fmt: skip
all_options = st.fixed_dictionaries(
    {},
    optional={
        "epochs": st.integers(1, 500),
        "precision": st.sampled_from(["32", "tf32", "bf16"]),
        "learning_rate": st.one_of(st.sampled_from(LEARNING_RATES), st.floats(1e-12, 1e3)),
        "batch_size": st.integers(1, 4096),
        "dropout": st.floats(0, 0.99),
    },
)


def settings_of(cells: list[Cell]) -> list[tuple[int, dict[str, Any]]]:
    """All but the data and the scoring, of which a command says nothing."""
    return [(cell.seed, {**cell.config, "scoring": None}) for cell in cells]


def a_sweep(preset: str) -> list[Record]:
    """Of DAGNN, in which the largest rate did best."""
    cells = [cell for cell in make_entry("sweep", preset).cells() if cell.model == "dagnn"]
    rates = [cell.settings["learning_rate"] for cell in cells]
    return [
        make_record(cell, METRICS | {"valid_f1": rate, "valid_accuracy": rate})
        for cell, rate in zip(cells, rates, strict=True)
    ]


@given(places, all_options, st.sets(st.integers(0, 99), min_size=1, max_size=3), st.booleans())
def test_every_run_has_the_command_that_gives_it(
    at: tuple[str, str, int], options: dict[str, Any], seeds: set[int], is_swept: bool
) -> None:
    name, preset, i = at
    place = make_entry(name, preset).places[i]
    cell = place.cell.trained_with(options)
    seeds = seeds if cell.options and not cell.is_timing else {0}
    records = [make_record(cell, METRICS, seed=seed) for seed in seeds]
    there = {
        record.cell.id: record for record in [*(a_sweep(preset) if is_swept else []), *records]
    }
    view = view_entry(name, preset, list(there.values()), {r.cell.id for r in records})
    shown = view.places[i]
    assert {record.cell for record in shown.records} >= {record.cell for record in records}
    assert shown.selection is not None
    for rates in (None, best_rates(((r.cell, r.metrics) for r in there.values()), preset)):
        found = shown.selection.cells(rates)
        ids = [replace(cell, data="toy").id for cell in found]
        assert ids == [record.cell.id for record in shown.records]
    given_back = shown.selection.options
    assert all(cell.options[option] == value for option, value in given_back.items())


def test_command() -> None:
    selection = Selection(
        "figure-lp", "quick", ("15 %", "it's"), ("longest path",), (0, 3),
        {"learning_rate": 1e-05, "precision": "bf16"},
    )  # fmt: skip
    assert shlex.split(selection.command) == [
        "dagnn", "reproduce", "figure-lp", "--preset", "quick", "--row", "15 %", "--row", "it's",
        "--column", "longest path", "--seeds", "0,3", "--learning-rate", "1e-05",
        "--precision", "bf16",
    ]  # fmt: skip
    assert Selection("all", "paper").command == "dagnn reproduce all --preset paper"


def test_a_full_run_in_the_figure_of_times_is_of_its_table() -> None:
    """Its time stands there; the figure's own command would train for a few epochs."""
    (gcn,) = make_entry("table1", "paper").only(["GCN"], ["tok"]).cells([2])
    (dagnn,) = make_entry("table2", "paper").only(["DAGNN"], ["na"]).cells([0])
    options = {"epochs": 12, "precision": "bf16"}
    records = [
        make_record(cell.trained_with(options), METRICS, seed=cell.seed) for cell in (gcn, dagnn)
    ]
    view = view_entry("figure-time", "paper", records)
    commands = {p.place.row: p.selection.command for p in view.measured if p.selection}
    assert commands == {
        "GCN": "dagnn reproduce table1 --preset paper --row GCN --column tok --seeds 2 "
        "--epochs 12 --precision bf16",
        "DAGNN": "dagnn reproduce table2 --preset paper --row DAGNN --column na-rmse --seeds 0 "
        "--epochs 12",
    }
    (timed,) = make_entry("figure-time", "paper").only(["GCN"], ["tok"]).cells()
    view = view_entry("figure-time", "paper", [*records, make_record(timed, METRICS)])
    own = view.at("GCN", "tok")
    assert own is not None
    assert own.selection == Selection("figure-time", "paper", ("GCN",), ("tok",), (0,))


def test_what_no_option_gives_has_no_command() -> None:
    cell = make_entry("table1", "paper").only(["GCN"], ["lp"]).cells([0])[0]
    patient = Cell(cell.kind, {**cell.settings, "patience": 77})
    view = view_entry("table1", "paper", [make_record(patient, METRICS)])
    (place,) = view.measured
    assert place.changes == {"patience": 77}
    assert place.selection is None
    assert view.to_dict()["places"][0]["command"] is None


def test_scoring_is_not_told() -> None:
    cell = make_entry("table2", "paper").only(["GCN"], ["na"]).cells([0])[0]
    other = Cell(cell.kind, {**cell.settings, "scoring": {"seeds": 3, "options": {"vfe": {}}}})
    place = view_entry("table2", "paper", [make_record(other, METRICS)]).at("GCN", "na-r")
    assert place is not None
    assert place.selection is not None
    assert settings_of(place.selection.cells()) == settings_of([other])


def test_options_concern_those_that_have_them() -> None:
    options = {"epochs": 7, "precision": "bf16", "learning_rate": 0.25, "batch_size": 3}
    cells = Selection("all", "paper", seeds=(0,), options=options).cells()
    before = Selection("all", "paper", seeds=(0,)).cells()
    assert len(cells) == len(before)
    for cell in cells:
        if cell.kind == "code":
            rate = cell.settings["learning_rate"]
            assert (rate, cell.settings["precision"], cell.settings["batch_size"]) == (
                0.25, "bf16", 3,
            )  # fmt: skip
        elif cell.kind == "autoencoder":
            assert (cell.settings["rate"], cell.settings["batch_size"]) == (0.25, 3)
            assert not {"precision", "learning_rate"} & cell.settings.keys()
        else:
            assert cell in before
        if cell.kind in ("code", "autoencoder"):
            assert (cell.settings["epochs"] == 7) != cell.is_timing
            assert any(cell.same_model(other) and cell.id != other.id for other in before)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("table9", {}, r"expected one of table1, .*, sweep, all, got 'table9'$"),
        ("figure3", {}, r"got 'figure3'; did you mean 'figure-time'\?"),
        ("Figure-6", {}, r"got 'Figure-6'; did you mean 'figure-lp'\?"),
        ("Table 2", {}, r"got 'Table 2'; did you mean 'table2'\?"),
        ("table2", {"precision": "bf16"}, "take --precision, got none: models of code do"),
        ("figure-time", {"epochs": 5}, "take --epochs, got none: .* not where time is measured"),
        ("figure-network", {"batch_size": 5}, "take --batch-size, got none"),
        ("table1", {"learning_rate": 0.0}, r"expected a learning rate above 0, got 0\.0"),
        ("table1", {"learning_rate": float("nan")}, "learning rate above 0, got nan"),
        ("table1", {"learning_rate": float("inf")}, "learning rate above 0, got inf"),
        ("sweep", {"dropout": 0.3}, "expected a sweep without dropout"),
        ("table1", {"dropout": 1.0}, r"expected 0 <= dropout < 1, got 1\.0"),
        ("figure-lp", {"dropout": 0.1}, "expected runs that take --dropout, got none"),
        ("sweep", {"learning_rate": 0.1}, "expected a sweep to try its own learning rates"),
    ],
)
def test_bad_selections(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Selection(name, "paper", options=options).cells()


def test_nothing_chosen() -> None:
    with pytest.raises(ValueError, match=r"expected a row of table2 \('S-VAE', .*got 'Nobody'$"):
        Selection("table2", "quick", ("DAGNN", "Nobody"), ("na",)).cells()
    with pytest.raises(ValueError, match="got 'gcn as publishd'; did you mean 'GCN as published'"):
        Selection("table2", "quick", ("gcn as publishd",)).cells()
    with pytest.raises(ValueError, match=r"expected a column of table2 \('na-rmse', .*got 'tok'"):
        Selection("table2", "quick", ("DAGNN",), ("na", "tok")).cells()
    with pytest.raises(ValueError, match="columns of table1 that meet, got Node2Token and lp"):
        Selection("table1", "quick", ("Node2Token",), ("lp",)).cells()
