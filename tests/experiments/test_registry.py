"""Every table and figure of the paper has its runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dagnn.experiments import registry
from dagnn.experiments.cells import Cell
from dagnn.experiments.paper_values import TABLES, Value
from dagnn.experiments.registry import (
    NAMES,
    PRESETS,
    best_rates,
    changed_options,
    code_settings,
    make_entry,
)
from dagnn.search.learning_settings import LearningSettings
from dagnn.tasks.code_protocol import preset as code_preset


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", TABLES)
def test_tables_have_every_value_of_the_paper(name: str, preset: str) -> None:
    entry = make_entry(name, preset)
    expected: dict[tuple[str, str], Value | None]
    expected = {(r, c): v for r, row in TABLES[name].items() for c, v in row.items()}
    if name == "table2":  # the paper's GCN is of this kind
        expected |= {("GCN as published", c): v for c, v in TABLES[name]["GCN"].items()}
    if name == "table1":  # of which the paper has none
        ours = ("Bag of nodes", "DAGNN, gated-sum readout")
        expected |= {(row, column): None for row in ours for column in ("tok", "tok-15")}
    if name == "table5":  # of another code; a note has these values
        expected = {(r, c): v for (r, c), v in expected.items() if r != "D-VAE (orig)"}
    assert {(p.row, p.column): p.paper for p in entry.places} == expected


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", [*NAMES, "sweep"])
def test_cells_are_distinct_and_seeded(name: str, preset: str) -> None:
    entry = make_entry(name, preset)
    cells = entry.cells()
    assert cells
    assert len({cell.id for cell in cells}) == len(cells)
    trained = [c for c in cells if c.kind == "code" and not c.is_timing]
    if preset == "paper" and name != "sweep":
        assert {cell.seed for cell in trained} in ({0, 1, 2, 3, 4}, set())
    given = entry.cells([7])
    assert {c.seed for c in given if c.kind in ("code", "autoencoder") and not c.is_timing} <= {7}


def test_paper_preset_is_the_appendix() -> None:
    table1 = {(p.row, p.column): p.cell.settings for p in make_entry("table1", "paper").places}
    dagnn, gcn = table1["DAGNN", "tok"], table1["GCN", "tok-15"]
    assert (dagnn["batch_size"], dagnn["clip"], dagnn["patience"]) == (80, 0.25, 10)
    assert (gcn["batch_size"], gcn["clip"], gcn["patience"]) == (128, None, 20)
    assert (dagnn["train_share"], gcn["train_share"]) == (1.0, 0.15)
    assert dagnn["encoder"]["channels"] == gcn["encoder"]["channels"] == 300
    assert dagnn["encoder"]["bidirectional"]
    assert not table1["DAGNN", "lp"]["encoder"]["bidirectional"]
    assert not table1["DAGNN", "lp"]["encoder"]["depth"]
    assert table1["ASAP", "lp"]["encoder"]["layers"] == 3
    table2 = {(p.row, p.column): p.cell.settings for p in make_entry("table2", "paper").places}
    assert table2["GCN as published", "na-r"]["options"] == {"as_published": True}
    assert table2["GCN", "na-r"]["options"] == {}
    dagnn, gmg = table2["DAGNN", "bn-r"], table2["DeepGMG", "na-rmse"]
    assert (dagnn["rate"], dagnn["epochs"], dagnn["hidden_channels"]) == (1e-3, 50, 501)
    assert (gmg["rate"], gmg["epochs"], gmg["scoring"]["seeds"]) == (1e-4, 30, 10)


def test_paper_search_is_that_of_the_search() -> None:
    ours = LearningSettings(**registry.PAPER_WAY)
    assert ours == LearningSettings.paper()


def test_a_model_is_one_cell_in_all_tables() -> None:
    """DAGNN as it is stands in the tables 1 to 4 and 6, and in Figure 4."""

    def at(name: str, row: str, column: str) -> str:
        entry = make_entry(name).only([row], [column])
        (cell,) = entry.cells()
        return cell.id

    for column in ("tok-15", "lp-15"):
        ids = {at(t, "DAGNN", column) for t in ("table1", "table3")} | {at("table4", "2", column)}
        ids.add(at("table6", "Yes" if column == "tok-15" else "No", column))
        assert len(ids) == 1
    for column in ("na-rmse", "bn-r"):
        ids = {at(t, "DAGNN", column) for t in ("table2", "table3")} | {at("table4", "2", column)}
        ids.add(at("table6", "Yes" if column == "bn-r" else "No", column))
        assert len(ids) == 1
    assert at("figure-layers", "1", "tok-15") == at("table3", "Single layer", "tok-15")
    assert at("table5", "D-VAE (ours)", "na") == at("table2", "D-VAE", "na")


def test_a_readout_is_named_where_it_is_not_the_papers() -> None:
    """Records of models with the paper's, made before there was a choice, do not name it."""
    run = code_preset("paper", "tok", "dagnn")
    other = replace(run, encoder=replace(run.encoder, readout="sum"))
    assert "readout" not in code_settings(run)["encoder"]
    assert code_settings(other)["encoder"]["readout"] == "sum"
    one, two = Cell("code", code_settings(run)), Cell("code", code_settings(other))
    assert not one.same_model(two)


def test_only() -> None:
    entry = make_entry("table3").only(["DAGNN", "FC layer"], ["na"])
    assert {(p.row, p.column) for p in entry.places} == {
        ("DAGNN", "na-rmse"), ("DAGNN", "na-r"), ("FC layer", "na-rmse"), ("FC layer", "na-r"),
    }  # fmt: skip
    assert len(entry.cells()) == 2
    assert not make_entry("table3").only(["nobody"], None).places
    assert {p.column for p in make_entry("table1").only(None, ["tok"]).places} == {"tok"}


def test_best_rates_change_the_cells_of_the_model() -> None:
    sweep = [c for c in make_entry("sweep").cells() if (c.task, c.model) == ("lp", "gin")]
    runs = [
        (cell, {"valid_accuracy": 0.9 if cell.settings["learning_rate"] == 5e-3 else 0.5})
        for cell in sweep
    ]
    rates = best_rates(runs, "quick")
    assert rates == {("lp", "gin"): 5e-3}
    assert best_rates(runs[:1], "quick") == {}  # one alone was not chosen
    assert best_rates(runs, "paper") == {}
    cells = make_entry("table1", "quick", rates).only(["GIN"], None).cells()
    assert {(c.task, c.settings["learning_rate"]) for c in cells} == {("tok", 1e-3), ("lp", 5e-3)}
    ids = {cell.id for cell in sweep}
    assert sum(cell.id in ids for cell in cells) == 1  # LP-15 was run by the sweep


def test_rates_are_tried_for_what_table_1_has() -> None:
    tried = {(c.task, c.model) for c in make_entry("sweep", "paper").cells()}
    trained = [c for c in make_entry("table1", "paper").cells() if c.kind == "code"]
    assert tried == {(c.task, c.model) for c in trained}
    assert ("tok", "bag") in tried
    assert ("lp", "bag") not in tried


def test_rates_are_compared_that_were_tried_alike() -> None:
    cells = [c for c in make_entry("sweep").cells() if (c.task, c.model) == ("lp", "gin")]
    planned = [(cell, {"valid_accuracy": 0.5 + i / 100}) for i, cell in enumerate(cells[:3])]
    longer = [(cell.trained_with({"epochs": 99}), {"valid_accuracy": 0.9}) for cell in cells[3:5]]
    third = {("lp", "gin"): cells[2].settings["learning_rate"]}
    for runs in ([*planned, *longer], [*longer, *planned], [*longer[:1], *planned]):
        assert best_rates(runs, "quick") == third
    assert best_rates([*planned[:1], *longer[:1]], "quick") == {}
    most = [(cell, {"valid_accuracy": -rate}) for cell, _ in longer
            for rate in [cell.settings["learning_rate"]]]  # fmt: skip
    assert best_rates([*planned[:1], *most], "quick") == {
        ("lp", "gin"): cells[3].settings["learning_rate"]
    }
    as_many = [*most, *planned[:2]]  # those as planned count
    assert best_rates(as_many, "quick") == {("lp", "gin"): cells[1].settings["learning_rate"]}


def test_rates_with_dropout_are_not_the_protocols() -> None:
    cells = [c for c in make_entry("sweep").cells() if (c.task, c.model) == ("lp", "gin")]
    planned = [(cell, {"valid_accuracy": 0.5 + i / 100}) for i, cell in enumerate(cells[:2])]
    dropping = [(c.trained_with({"dropout": 0.3}), {"valid_accuracy": 0.9}) for c in cells[2:]]
    chosen = {("lp", "gin"): cells[1].settings["learning_rate"]}
    assert best_rates([*dropping, *planned], "quick") == chosen
    assert best_rates(dropping, "quick") == {}


def test_bad_names() -> None:
    with pytest.raises(ValueError, match=r"expected one of table1, .*, got 'table7'"):
        make_entry("table7")
    with pytest.raises(ValueError, match="expected a preset of quick, paper, got 'fast'"):
        make_entry("table1", "fast")


@pytest.mark.parametrize(
    ("model", "task", "both"),
    [("dagnn", "na", False), ("dagnn", "bn", True), ("d-vae", "na", True), ("d-vae", "bn", False)],
)
def test_a_model_has_its_own_directions(model: str, task: str, both: bool) -> None:
    assert changed_options({"bidirectional": both}, model, task) == {}
    other = {"bidirectional": not both}
    assert changed_options(other, model, task) == other
