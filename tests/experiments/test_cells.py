"""Cells are named by what they are."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagnn.experiments.cells import PROTOCOL, TIMING, Cell

CODE = {
    "task": "tok",
    "encoder": {"model": "dagnn", "layers": 2, "channels": 48},
    "learning_rate": 1e-3,
    "epochs": 4,
}
values = st.one_of(
    st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(), st.none()
)


@given(st.dictionaries(st.sampled_from(["task", "a", "b"]), values), st.integers(0, 9))
def test_id_follows_from_content_alone(settings: dict[str, object], seed: int) -> None:
    cell = Cell("baseline", settings, seed, "data")
    backwards = Cell("baseline", dict(reversed(settings.items())), seed, "data")
    assert cell.id == backwards.id
    assert Cell.from_config(cell.config, seed, "data") == cell
    assert cell.id != replace(cell, seed=seed + 1).id
    assert cell.id != replace(cell, data="other").id
    assert cell.id != Cell("baseline", {**settings, "c": 1}, seed, "data").id


def test_tuples_are_lists() -> None:
    assert Cell("search", {"a": (1, 2)}).id == Cell("search", {"a": [1, 2]}).id


@pytest.mark.parametrize("name", sorted(PROTOCOL))
def test_protocol_does_not_change_the_model(name: str) -> None:
    owner, _, inner = name.rpartition(".")
    changed = {owner: {**CODE[owner], inner: 77}} if owner else {name: 77}  # type: ignore[dict-item]
    cell, other = Cell("code", CODE), Cell("code", {**CODE, **changed})
    assert cell.id != other.id
    assert cell.same_model(other)
    assert cell.differences(other) == {name: 77}


def test_trained_otherwise() -> None:
    cell = Cell("code", CODE)
    assert cell.options == {"learning_rate": 1e-3, "epochs": 4}
    other = cell.trained_with({"epochs": 9, "learning_rate": 0.5, "batch_size": 3})
    assert cell.differences(other) == {"epochs": 9, "learning_rate": 0.5}
    assert cell.trained_with({}) == cell
    assert not cell.same_training(other)
    assert other.trained_with(cell.options).same_training(cell)
    dropping = Cell("code", {**CODE, "encoder": {"model": "dagnn", "dropout": None}})
    assert dropping.options["dropout"] is None
    some = dropping.trained_with({"dropout": 0.3})
    assert some.settings["encoder"] == {"model": "dagnn", "dropout": 0.3}
    assert some.same_model(dropping)
    assert some.trained_with({"dropout": None}) == dropping
    assert dropping.differences(some) == {"encoder.dropout": 0.3}
    rate = Cell("autoencoder", {"task": "na", "rate": 1e-3})
    assert rate.trained_with({"learning_rate": 0.5}).settings == {"task": "na", "rate": 0.5}
    timed = Cell("code", {**CODE, "purpose": TIMING})
    assert timed.options == {"learning_rate": 1e-3}
    assert timed.trained_with({"epochs": 9}) == timed


def test_training_does_not_depend_on_scoring() -> None:
    cell = Cell("autoencoder", {"task": "na", "scoring": {"seeds": 10}})
    other = Cell("autoencoder", {"task": "na", "scoring": {"seeds": 3}}, seed=5, data="x")
    assert cell.same_training(other)
    assert not cell.same_training(Cell("autoencoder", {"task": "bn", "scoring": {"seeds": 10}}))


def test_other_models() -> None:
    cell = Cell("code", CODE)
    deeper = Cell("code", {**CODE, "encoder": {**CODE["encoder"], "layers": 3}})  # type: ignore[dict-item]
    assert not cell.same_model(deeper)
    assert cell.differences(deeper) == {"encoder.layers": 3}
    assert not cell.same_model(Cell("code", {**CODE, "train_share": 0.15}))
    assert cell.same_model(replace(cell, seed=4, data="x"))


def test_names() -> None:
    cell = Cell("code", CODE)
    assert (cell.name, cell.task, cell.model, cell.data_kind) == (
        "code-tok-dagnn", "tok", "dagnn", "code",
    )  # fmt: skip
    assert cell.id.startswith("code-tok-dagnn-")
    assert Cell("autoencoder", {"task": "na", "model": "d-vae"}).data_kind == "na"


def test_bad_cells() -> None:
    with pytest.raises(ValueError, match="expected a kind of code"):
        Cell("cod", {})
    with pytest.raises(ValueError, match="not JSON compliant"):
        Cell("code", {"rate": float("nan")})
