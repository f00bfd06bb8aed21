"""A cell: one run of an experiment, named by what it is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dagnn.tasks.code_encoders import DYNAMIC

__all__ = ["KINDS", "Cell"]

KINDS = ("code", "baseline", "lengths", "autoencoder", "search")

# How a model is trained, but not what it is: a run that differs from a table's cell in these alone
# still stands in the table, with a note.
PROTOCOL = frozenset(
    {
        "learning_rate",
        "precision",
        "epochs",
        "patience",
        "batch_size",
        "clip",
        "valid_limit",
        "rate",
        "encoder.dropout",
    }
)
# Of these, what a command may set, and what it calls it.
OPTIONS = {
    "epochs": "epochs",
    "precision": "precision",
    "learning_rate": "learning_rate",
    "rate": "learning_rate",
    "batch_size": "batch_size",
    "encoder.dropout": "dropout",
}
TIMING = "time"  # the purpose of a run that is too short for its score to mean anything


@dataclass(frozen=True)
class Cell:
    """One run: its result follows from this and the content of the data.

    Args:
        kind: One of :data:`KINDS`; it says what runs it (:mod:`dagnn.experiments.run_cell`).
        settings: All that the run is: numbers, words, lists and dictionaries.
        seed: Of all that is random.
        data: The name of the data, once it is known.

    Example:
        >>> cell = Cell("baseline", {"task": "lp"})
        >>> cell.name
        'baseline-lp'
        >>> cell.id == Cell("baseline", {"task": "lp"}, seed=1).id
        False
    """

    kind: str
    settings: Mapping[str, Any] = field(hash=False)
    seed: int = 0
    data: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"expected a kind of {', '.join(KINDS)}, got {self.kind!r}")
        # Tuples become lists, as they will be when they are read from a file.
        plain = json.loads(json.dumps(self.settings, allow_nan=False))
        object.__setattr__(self, "settings", plain)

    @property
    def config(self) -> dict[str, Any]:
        """The cell as it stands in its record."""
        return {"kind": self.kind, **self.settings}

    @classmethod
    def from_config(cls, config: Mapping[str, Any], seed: int, data: str) -> Cell:
        """The inverse of :attr:`config`."""
        settings = {name: value for name, value in config.items() if name != "kind"}
        return cls(config["kind"], settings, seed, data)

    @property
    def id(self) -> str:
        """The name with a digest of config, seed and data; another config is another cell."""
        text = json.dumps([self.config, self.seed, self.data], sort_keys=True)
        return f"{self.name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"

    @property
    def task(self) -> str:
        return str(self.settings.get("task", self.kind))

    @property
    def model(self) -> str | None:
        encoder = self.settings.get("encoder", self.settings)
        return encoder.get("model")

    @property
    def dropout(self) -> float | None:
        """That of a model of code, if it is another than its own: none, but for SAGPool and
        ASAP, of which 0 is another."""
        encoder = self.settings.get("encoder", {})
        dropout: float | None = encoder.get("dropout")
        return dropout or (0.0 if dropout == 0 and encoder["model"] in DYNAMIC else None)

    @property
    def name(self) -> str:
        """A few words for people; cells that differ may share it."""
        words = [self.kind, self.task, self.model]
        return "-".join(dict.fromkeys(word for word in words if word))

    @property
    def is_timing(self) -> bool:
        return self.settings.get("purpose") == TIMING

    @property
    def data_kind(self) -> str:
        """Which of :data:`dagnn.experiments.data_files.DATA` it needs."""
        return "code" if self.kind in ("code", "baseline", "lengths") else self.task

    @property
    def options(self) -> dict[str, Any]:
        """How it is trained, as far as a command may set it, under the command's names."""
        settings = _flat(self.settings)
        return {option: settings[name] for name, option in self._own_options().items()}

    def trained_with(self, options: Mapping[str, Any]) -> Cell:
        """The same model trained otherwise.

        Args:
            options: In place of those of :attr:`options`; what it lacks there does not concern it.

        Example:
            >>> cell = Cell("autoencoder", {"task": "na", "rate": 1e-3})
            >>> cell.trained_with({"learning_rate": 1e-4, "precision": "bf16"}).settings
            {'task': 'na', 'rate': 0.0001}
        """
        own = self._own_options().items()
        changed = {name: options[option] for name, option in own if option in options}
        return replace(self, settings=_with(self.settings, changed))

    def same_model(self, other: Cell) -> bool:
        """Whether the other is of the same model on the same task, however it was trained and
        whatever its seed."""
        return self._model_config() == other._model_config()

    def same_training(self, other: Cell) -> bool:
        """Whether the other is of the same model and trained alike, whatever its seed, and however
        its latent space was scored."""
        mine, others = ({**cell.config, "scoring": None} for cell in (self, other))
        return mine == others

    def differences(self, other: Cell) -> dict[str, Any]:
        """What the other has other than this one: names of settings and the other's values."""
        return _differences(self.config, other.config)

    def model_differences(self, other: Cell) -> dict[str, Any]:
        """What :meth:`same_model` finds different: names of settings and the other's values."""
        return _differences(self._model_config(), other._model_config())

    def _own_options(self) -> dict[str, str]:
        fixed = {"epochs"} if self.is_timing else set()
        settings = _flat(self.settings)
        return {k: v for k, v in OPTIONS.items() if k in settings and k not in fixed}

    def _model_config(self) -> dict[str, Any]:
        config = {k: v for k, v in self.config.items() if k not in ("purpose", "scoring")}
        return {name: value for name, value in _flat(config).items() if name not in PROTOCOL}


def _differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    mine, others = _flat(one), _flat(other)
    names = sorted(mine.keys() | others.keys())
    return {name: others.get(name) for name in names if mine.get(name) != others.get(name)}


def _with(settings: Mapping[str, Any], changes: Mapping[str, Any], prefix: str = "") -> Any:
    """The settings with other values, by the names of :func:`_flat`."""
    return {
        name: _with(value, changes, f"{prefix}{name}.")
        if isinstance(value, Mapping)
        else changes.get(prefix + name, value)
        for name, value in settings.items()
    }


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat
