"""Our value beside the paper's."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from dagnn.experiments.cells import Cell
from dagnn.experiments.paper_values import Value
from dagnn.experiments.records import Record
from dagnn.experiments.registry import make_entry
from dagnn.experiments.views import (
    EntryView,
    Measured,
    PlaceView,
    standard_errors,
    view_all,
    view_entry,
    why_in_no_table,
)
from dagnn.experiments.wording import notes
from tests.experiments.fake_records import latent_metrics, make_record


def cell_at(name: str, row: str, column: str, preset: str = "paper") -> Cell:
    (cell,) = make_entry(name, preset).only([row], [column]).cells([0])
    return cell


def place_at(name: str, row: str, column: str, records: list[Record]) -> PlaceView:
    place = view_entry(name, "paper", records).at(row, column)
    assert place is not None
    return place


def with_settings(cell: Cell, **settings: object) -> Cell:
    return Cell(cell.kind, {**cell.settings, **settings}, cell.seed)


def test_over_seeds() -> None:
    cell = cell_at("table1", "GAT", "lp-15")
    values = [0.80, 0.82, 0.87]
    records = [make_record(cell, {"test_accuracy": v}, seed=i) for i, v in enumerate(values)]
    place = place_at("table1", "GAT", "lp-15", records)
    assert place.value is not None
    assert place.value.mean == pytest.approx(83.0)
    assert place.value.std == pytest.approx(100 * statistics.stdev(values))
    assert place.value.runs == 3
    assert not place.changes
    error = math.sqrt(place.value.std**2 / 3 + 1.34**2 / 5)  # type: ignore[operator]
    assert place.error == pytest.approx((83.0 - 83.15) / error)
    one = place_at("table1", "GAT", "lp-15", records[:1])
    assert one.value == Measured(pytest.approx(80.0), None, 1)
    assert one.error is None
    assert place_at("table1", "GAT", "lp", records).value is None


def test_latent_space_over_its_scorings() -> None:
    cell = cell_at("table2", "DAGNN", "na-rmse")
    metrics = latent_metrics([0.2, 0.3], [0.9, 0.95]) | latent_metrics([0.1], [0.99], "exact")
    record = make_record(cell, metrics)
    place = place_at("table2", "DAGNN", "na-rmse", [record])
    assert place.value == (pytest.approx(0.25), pytest.approx(statistics.stdev([0.2, 0.3])), 2)
    assert place.exact_process == (0.1, None, 1)
    for table, row in (("table3", "DAGNN"), ("table4", "2"), ("table6", "No")):
        assert place_at(table, row, "na-r", [record]).value == place_at(
            "table2", "DAGNN", "na-r", [record]
        ).value  # fmt: skip
    other = make_record(cell, latent_metrics([0.4, 0.5], [0.8, 0.8]), seed=1)
    both = place_at("table2", "DAGNN", "na-rmse", [record, other]).value
    assert both == (pytest.approx(0.35), pytest.approx(statistics.stdev([0.25, 0.45])), 2)
    vfe = make_record(cell, latent_metrics([0.5, 0.5], [0.8, 0.8], "vfe"))
    assert place_at("table2", "DAGNN", "na-rmse", [vfe]).value == (0.5, 0.0, 2)


def test_runs_with_another_protocol_stand_with_a_note() -> None:
    cell = cell_at("table1", "DAGNN", "lp")
    other = make_record(with_settings(cell, precision="tf32"), {"test_accuracy": 0.9})
    place = place_at("table1", "DAGNN", "lp", [other])
    assert place.changes == {"precision": "tf32"}
    planned = make_record(cell, {"test_accuracy": 0.8})
    place = place_at("table1", "DAGNN", "lp", [other, planned])  # the planned one counts
    assert place.records == (planned,)
    assert not place.changes
    wider = with_settings(cell, encoder={**cell.settings["encoder"], "channels": 10})
    assert not place_at("table1", "DAGNN", "lp", [make_record(wider, {"test_accuracy": 1})]).records


def test_another_scoring_stands_with_a_note() -> None:
    cell = cell_at("table2", "DAGNN", "na-rmse")
    fitc = cell.settings["scoring"]["options"]["fitc"]
    latent = latent_metrics([0.2, 0.3], [0.9, 0.95])

    def changes(metrics: dict[str, object], options: dict[str, object], seeds: int) -> object:
        scored = with_settings(cell, scoring={"seeds": seeds, "options": options})
        return place_at("table2", "DAGNN", "na-rmse", [make_record(scored, metrics)]).changes

    assert changes(latent, {"fitc": fitc}, 10) == {}
    assert changes(latent, {"fitc": fitc, "vfe": {"steps": 1}}, 10) == {}  # beside it
    assert changes(latent, {"fitc": {**fitc, "steps": 60}}, 2) == {
        "scoring.seeds": 2, "scoring.steps": 60
    }  # fmt: skip
    other = latent_metrics([0.2, 0.3], [0.9, 0.95], "vfe")
    assert changes(other, {"vfe": fitc}, 10) == {"scoring.process": "vfe"}
    short = with_settings(cell, scoring={"seeds": 2, "options": {"fitc": fitc}})
    view = view_entry("table2", "paper", [make_record(short, latent)])
    assert "DAGNN, na-rmse: run with scoring.seeds 2." in notes(view)
    commands = "The commands score latent spaces as planned, also where these were not."
    assert commands in notes(view)
    assert commands not in notes(view_entry("table2", "paper", [make_record(cell, latent)]))


def test_processes_of_the_papers_size_stand_with_a_note() -> None:
    latent = latent_metrics([0.2, 0.3], [0.9, 0.95])

    def is_noted(name: str, preset: str, row: str, column: str, metrics: dict[str, Any]) -> bool:
        cell = cell_at(name, row, column, preset)
        view = view_entry(name, preset, [make_record(cell, metrics)])
        assert view.measured
        return any("that of D-VAE's code" in note for note in notes(view))

    assert is_noted("table2", "paper", "DAGNN", "na-rmse", latent)
    assert not is_noted("table2", "quick", "DAGNN", "na-rmse", latent)
    assert not is_noted("table1", "paper", "DAGNN", "tok", {"test_f1": 0.1})


def test_why_a_run_is_in_no_table() -> None:
    quick, paper = (cell_at("table2", "DAGNN", "na-rmse", preset) for preset in ("quick", "paper"))
    metrics = latent_metrics([0.5, 0.6], [0.8, 0.7])

    def why(cell: Cell) -> str:
        return why_in_no_table(make_record(cell, metrics))

    assert why(quick) == why(paper) == why(with_settings(paper, epochs=2)) == ""
    assert why(with_settings(quick, graphs=None)) == "the nearest place has graphs 2000"
    smaller = with_settings(paper, hidden_channels=6)
    assert why(smaller) == "the nearest place has hidden_channels 501 (here 6)"
    assert why(with_settings(paper, data="my.txt")) == "its graphs are those of my.txt"
    assert why(with_settings(paper, model="mine")) == "none has autoencoder-na-mine"
    code = cell_at("table1", "DAGNN", "tok")
    summed = with_settings(code, encoder={**code.settings["encoder"], "readout": "sum"})
    assert why(summed) == "the nearest place has encoder.readout max (here sum)"
    exact = make_record(paper, latent_metrics([0.5], [0.8], "exact"))  # its time is in a figure
    assert why_in_no_table(exact).startswith("it has no score by a sparse Gaussian process")


def test_runs_that_come_first() -> None:
    cell = cell_at("table1", "DAGNN", "lp")
    short = cell.trained_with({"epochs": 2})
    planned, asked = (make_record(c, {"test_accuracy": 0.9}) for c in (cell, short))
    view = view_entry("table1", "paper", [planned, asked], {asked.cell.id})
    place = view.at("DAGNN", "lp")
    assert place is not None
    assert (place.records, place.changes) == ((asked,), {"epochs": 2})
    assert place_at("table1", "DAGNN", "lp", [planned, asked]).records == (planned,)


def test_of_several_rates_the_validation_split_says_which() -> None:
    """Not the order in which they were run, and not the test split."""
    cell = cell_at("table1", "D-VAE", "tok-15").trained_with({"epochs": 8})
    scores = {1e-3: (0.12, 0.08), 5e-4: (0.11, 0.09), 2e-3: (0.10, 0.10)}
    rates = {
        rate: make_record(
            cell.trained_with({"learning_rate": rate}), {"valid_f1": valid, "test_f1": test}
        )
        for rate, (valid, test) in scores.items()
    }
    for order in permutations(rates.values()):
        assert place_at("table1", "D-VAE", "tok-15", list(order)).records == (rates[1e-3],)
    again = make_record(rates[5e-4].cell, {"valid_f1": 0.11, "test_f1": 0.09}, seed=1)
    both = (rates[5e-4], again)  # most seeds come before
    assert place_at("table1", "D-VAE", "tok-15", [*rates.values(), again]).records == both


def test_rates_that_were_tried_are_told() -> None:
    cell = cell_at("table1", "D-VAE", "tok-15").trained_with({"epochs": 8})

    def runs(rate: float, valid: list[float], **data: str) -> list[Record]:
        at = cell.trained_with({"learning_rate": rate})
        scores = [{"valid_f1": v, "test_f1": 0.08} for v in valid]
        return [make_record(at, of, seed=seed, **data) for seed, of in enumerate(scores)]

    def note(*records: Record) -> str:
        found = notes(view_entry("table1", "paper", records))
        return next((n for n in found if n.startswith("Learning rates tried")), "")

    low, high = runs(5e-4, [0.10, 0.11]), runs(1e-3, [0.12, 0.13])
    assert note(*low) == note(*low, *runs(1e-3, [0.12], data="another")) == ""
    assert note(*low, *high).endswith(
        "of which the table has the first, by the validation split: "
        "D-VAE, tok-15: 0.001 (2: 12.50), 0.0005 (2: 10.50)."
    )
    fewer = note(*low, *high[:1])  # the mean says 0.001, of a single seed
    assert fewer.endswith("D-VAE, tok-15: 0.0005 (2: 10.50), 0.001 (1: 12.00).")
    assert "the first, as planned, else by the number of seeds" in fewer
    longer = high[0].cell.trained_with({"epochs": 9})
    assert note(*high, make_record(longer, high[0].metrics)) == ""  # one rate alone


def test_dropout_is_told_and_stands_in_no_table_of_the_protocol() -> None:
    """However good it is, while there is a run without."""
    cell = cell_at("table1", "GG-NN", "tok-15").trained_with({"epochs": 8})
    plain = make_record(cell, {"valid_f1": 0.12, "test_f1": 0.08})
    dropping = cell.trained_with({"dropout": 0.3})
    slower = dropping.trained_with({"learning_rate": 5e-4})
    dropped = [make_record(dropping, {"valid_f1": 0.14, "test_f1": 0.1}, seed=i) for i in range(3)]
    dropped.append(make_record(slower, {"valid_f1": 0.13, "test_f1": 0.09}))

    def dropout_note(view: EntryView) -> str:
        (note,) = [note for note in notes(view) if note.startswith("With another dropout")]
        return note

    for order in ([plain, *dropped], [*dropped, plain]):
        view = view_entry("table1", "paper", order)
        place = view.at("GG-NN", "tok-15")
        assert place is not None
        assert place.records == (plain,)
        _, *told = dropout_note(view).split("GG-NN, tok-15: ")
        assert told == [
            "10.00 ± 0.00 with 0.3 at learning rate 0.001 (3: 14.00; there 1: 12.00); ",
            "9.00 with 0.3 at learning rate 0.0005 (1: 13.00; there 1: 12.00).",
        ]
        assert not any(note.startswith("Learning rates") for note in notes(view))
    asked = view_entry("table1", "paper", [plain, dropped[0]], {dropped[0].cell.id})
    assert dropout_note(asked).endswith(
        "8.00 without at learning rate 0.001 (1: 12.00; there 1: 14.00)."
    )
    alone = place_at("table1", "GG-NN", "tok-15", dropped)
    assert alone.changes == {"epochs": 8, "encoder.dropout": 0.3}
    assert alone.selection is not None
    assert alone.selection.command.endswith("--epochs 8 --dropout 0.3")


def test_no_dropout_is_that_of_the_protocol_but_where_a_model_has_its_own() -> None:
    for row, own in (("GG-NN", True), ("SAGPool", False)):
        cell = cell_at("table1", row, "tok-15")
        assert (cell.trained_with({"dropout": 0.0}).dropout == cell.dropout) is own


@pytest.mark.parametrize(
    ("row", "begins"),
    [
        ("Bag of nodes", "how far the nodes'"),
        ("DAGNN, gated-sum readout", "DAGNN with GG-NN's kind"),
    ],
)
def test_a_row_of_ours_is_explained_where_it_is_measured(row: str, begins: str) -> None:
    ours, gcn = (cell_at("table1", name, "tok") for name in (row, "GCN"))
    for cell in (ours, gcn):
        view = view_entry("table1", "paper", [make_record(cell, {"test_f1": 0.1})])
        assert any(note.startswith(f"{row}: {begins}") for note in notes(view)) == (cell is ours)


def test_the_code_of_d_vaes_authors_is_not_run_here() -> None:
    cell = cell_at("table5", "D-VAE (ours)", "na-rmse")
    view = view_entry("table5", "paper", [make_record(cell, latent_metrics([0.2], [0.9]))])
    assert view.entry.rows == ["D-VAE (ours)"]
    (note,) = [note for note in notes(view) if "D-VAE (orig)" in note]
    assert "which is not run here: NA RMSE 0.375 ± 0.003, NA r 0.924 ± 0.001, BN RMSE" in note


def test_data_sets_are_not_mixed() -> None:
    cell = cell_at("table1", "DAGNN", "lp")
    small = [make_record(cell, {"test_accuracy": 0.5}, seed=i, data="small") for i in range(2)]
    large = [make_record(cell, {"test_accuracy": 0.7}, seed=i, data="large") for i in range(3)]
    place = place_at("table1", "DAGNN", "lp", [*small, *large])
    assert place.records == tuple(large)


def test_timed_runs_stand_in_the_figure_alone() -> None:
    timed = cell_at("figure-time", "GCN", "tok")
    assert timed.is_timing
    record = make_record(timed, {"train_seconds": 3.0, "test_f1": 0.01})
    assert place_at("figure-time", "GCN", "tok", [record]).value == (3.0, None, 1)
    assert place_at("table1", "GCN", "tok", [record]).value is None
    full = make_record(cell_at("table1", "GCN", "tok"), {"train_seconds": 4.0, "test_f1": 0.3})
    place = place_at("figure-time", "GCN", "tok", [full])
    assert place.value == (4.0, None, 1)
    assert not place.changes
    beside = make_record(full.cell, {**full.metrics, "train_seconds": 9.0}, shared=True)
    assert place_at("figure-time", "GCN", "tok", [beside]).value is None
    assert place_at("table1", "GCN", "tok", [beside]).value is not None


def test_larger_batches_are_not_timed_as_planned_ones() -> None:
    """An epoch of them takes less: they stand in the figure with a note, and only alone."""
    planned = cell_at("figure-time", "GCN", "tok").trained_with({"precision": "bf16"})
    larger = planned.trained_with({"batch_size": 256})
    first = make_record(planned, {"train_seconds": 12.0}, finished="2026-01-01T00:00:00+00:00")
    later = [
        make_record(larger, {"train_seconds": 8.0}, seed=i, finished="2026-01-02T00:00:00+00:00")
        for i in range(2)
    ]
    place = place_at("figure-time", "GCN", "tok", [first, *later])
    assert (place.records, place.changes) == ((first,), {"precision": "bf16"})
    place = place_at("figure-time", "GCN", "tok", later)
    assert place.changes == {"precision": "bf16", "batch_size": 256}


@pytest.mark.parametrize(("column", "is_said"), [("tok", False), ("na", True)])
def test_another_gcn_is_timed_on_na(column: str, is_said: bool) -> None:
    record = make_record(cell_at("figure-time", "GCN", column), {"train_seconds": 3.0})
    found = notes(view_entry("figure-time", "paper", [record]))
    assert any("ours is a convolution" in note for note in found) == is_said


def test_runs_that_were_best_at_the_end_are_named() -> None:
    cell = cell_at("table1", "GCN", "lp")

    def found(*best: int) -> list[str]:
        metrics = [{"test_accuracy": 0.9, "epochs": 8, "best_epoch": epoch} for epoch in best]
        records = [make_record(cell, of, seed=seed) for seed, of in enumerate(metrics)]
        view = view_entry("table1", "paper", records)
        return [note for note in notes(view) if note.startswith("Still improving")]

    (note,) = found(7, 3, 7)
    assert note.endswith(": GCN, lp (2 of 3).")
    assert not found(6, 3)


def test_standard_errors() -> None:
    assert standard_errors(Measured(1.0, 0.0, 5), Value(1.0, 0.0), 5) is None
    assert standard_errors(Measured(1.0, 0.1, 4), Value(2.0, 0.0), 5) == pytest.approx(-20)


def test_all_in_the_papers_order() -> None:
    names = [view.entry.name for view in view_all([])]
    assert names == [
        "table1", "table2", "table3", "table4", "table5", "table6",
        "figure-time", "figure-layers", "figure-network", "figure-lp",
    ]  # fmt: skip
    quick = cell_at("table2", "GCN", "bn-r", "quick")
    paper = cell_at("table2", "GCN", "bn-r")
    metrics = latent_metrics([0.5, 0.6], [0.8, 0.7])
    records = [make_record(quick, metrics), make_record(paper, metrics)]
    presets = [v.entry.preset for v in view_all(records) if v.entry.name == "table2"]
    assert presets == ["paper", "quick"]
    errors = [view_entry("table2", p, records).at("GCN", "bn-r") for p in ("quick", "paper")]
    assert [place is not None and place.error is None for place in errors] == [True, False]
    (baseline,) = make_entry("table1").only(["MajorityInValid"], None).cells()
    (lp,) = make_entry("table1").only(["GCN"], ["lp"]).cells([0])
    lengths = make_entry("figure-lp").cells()
    metrics_of = {"test_accuracy": 0.5, "MajorityInValid": 0.2, "mean": 9.0}
    same = [make_record(cell, metrics_of) for cell in (baseline, lp, *lengths)]
    shown = {(v.entry.name, v.entry.preset) for v in view_all(same) if v.measured}
    assert {("table1", "quick"), ("figure-lp", "paper")} <= shown
    assert not {("table1", "paper"), ("figure-lp", "quick")} & shown
    content = view_entry("table2", "paper", records).to_dict()
    assert {place["row"] for place in content["places"]} == {"GCN"}


def test_swept_rates_are_the_planned_ones() -> None:
    cells = [c for c in make_entry("sweep", "paper").cells() if (c.task, c.model) == ("tok", "gin")]
    records = [
        make_record(c, {"valid_f1": c.settings["learning_rate"], "test_f1": 0.1}) for c in cells
    ]
    place = place_at("table1", "GIN", "tok-15", records)
    assert [r.cell.settings["learning_rate"] for r in place.records] == [1.5e-2]
    assert not place.changes
    assert replace(place.place.cell, data="toy").id == place.records[0].cell.id
