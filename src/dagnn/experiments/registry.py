"""The paper's tables and figures: which runs stand where, and the paper's value for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from dagnn.autoencoders.fitting import AutoencoderConfig
from dagnn.autoencoders.fitting import preset as autoencoder_preset
from dagnn.autoencoders.score_run import PRESETS as SCORING
from dagnn.autoencoders.score_run import process_options
from dagnn.experiments.cells import TIMING, Cell
from dagnn.experiments.entries import Entry, Place
from dagnn.experiments.paper_values import LAYERS, NETWORK_BIC, TABLES, TIMES, Value
from dagnn.experiments.records import SPARSE
from dagnn.tasks.code_protocol import LEARNING_RATES, SWEEP_SHARE, CodeRun
from dagnn.tasks.code_protocol import preset as code_preset

__all__ = [
    "AS_PUBLISHED",
    "BAG",
    "GATED",
    "NAMES",
    "ORIGINAL",
    "PRESETS",
    "TITLES",
    "Rates",
    "best_rates",
    "changed_options",
    "code_settings",
    "make_entry",
]

PRESETS = ("quick", "paper")
Rates = Mapping[tuple[str, str], float]  # the learning rate of a task and a model

BAG = "Bag of nodes"  # a row of ours
GATED = "DAGNN, gated-sum readout"  # a row of ours
CODE_MODELS = {
    BAG: "bag", "GCN": "gcn", "GCN-VN": "gcn-vn", "GIN": "gin", "GIN-VN": "gin-vn", "GAT": "gat",
    "GG-NN": "ggnn", "SAGPool": "sagpool", "ASAP": "asap", "D-VAE": "dvae", "DAGNN": "dagnn",
}  # fmt: skip
AUTOENCODERS = {
    "S-VAE": "s-vae", "GraphRNN": "graphrnn", "GCN": "gcn", "DeepGMG": "deepgmg",
    "D-VAE": "d-vae", "DAGNN": "dagnn",
}  # fmt: skip
AS_PUBLISHED = "GCN as published"  # a row of ours
ORIGINAL, REIMPLEMENTED = "D-VAE (orig)", "D-VAE (ours)"  # the rows of the paper's Table 5
ABLATIONS: dict[str, dict[str, Any]] = {
    "DAGNN": {},
    "Gated-sum aggr.": {"aggregator": "gated_sum"},
    "Single layer": {"layers": 1},
    "FC layer": {"cell": "linear"},
    "Pool all nodes": {"pool": "all"},
    "W/o edge attr.": {"edge_attributes": False},
}
SHARE_15 = 0.15
TIMED_EPOCHS = 3  # of a run that only measures time
METRICS = {"tok": "f1", "lp": "accuracy"}

# Small enough that all of them end within half an hour on two cores. TOK's graphs are deep, so it
# gets fewer; of a "-15" task 15 % are trained on.
QUICK_FUNCTIONS = {"tok": 3000, "lp": 4000}
QUICK_TEST = {"tok": 1000, "lp": 2000}
QUICK_EPOCHS = {"tok": 4, "lp": 6}
QUICK_CHANNELS = 48
QUICK_GRAPHS = 2000
QUICK_SCORING: dict[str, Any] = {
    "seeds": 3,
    "options": {"vfe": {"points": None, "fit_points": None, "num_inducing": 100, "steps": 40}},
}
# Pivots along a fixed order, and the likeliest graph of each latent point as it is.
PAPER_WAY: dict[str, Any] = {
    "pivots": "fixed", "decodings": 1, "repair": False, "improve": False, "foresee": False,
    "process": "sparse",
}  # fmt: skip
QUICK_SEARCH = {
    "num_pivots": 4000, "epochs": 5, "hidden_channels": 48, "latent_channels": 16, "batch_size": 64,
}  # fmt: skip
PAPER_SEARCH = {
    "num_pivots": 200_000, "epochs": 50, "hidden_channels": 501, "latent_channels": 56,
    "batch_size": 128,
}  # fmt: skip
SLOW = "deepgmg"  # the paper gives it a tenth of the epochs, too


class _Maker:
    """Makes the places of all entries for a preset."""

    def __init__(self, preset: str, rates: Rates) -> None:
        self.preset, self.rates = preset, rates
        self.is_quick = preset == "quick"

    def code(
        self, column: str, model: str, *, timing: bool = False, rate: float | None = None,
        **options: Any,
    ) -> Cell:  # fmt: skip
        """A model of code; the column is a task, with ``-15`` on 15 % of the training split."""
        task, _, part = column.partition("-")
        run = code_preset(self.preset, task, model)
        encoder = replace(run.encoder, **options)
        settings: dict[str, Any] = {"learning_rate": rate or self.rates.get((task, model), 1e-3)}
        if self.is_quick:
            share = SHARE_15 if part else 1.0
            settings |= {
                "train_limit": round(share * QUICK_FUNCTIONS[task]),
                "valid_limit": QUICK_TEST[task],
                "epochs": QUICK_EPOCHS[task],
            }
            encoder = replace(encoder, channels=QUICK_CHANNELS)
        elif part:
            settings["train_share"] = SHARE_15
        if timing and not self.is_quick:
            settings |= {"epochs": TIMED_EPOCHS, "patience": None}
        run = replace(run, encoder=encoder, **settings)
        config = code_settings(run)
        if self.is_quick:
            config["test_limit"] = QUICK_TEST[task]
        elif timing:
            config["purpose"] = TIMING
        return Cell("code", config)

    def autoencoder(self, task: str, model: str, *, timing: bool = False, **options: Any) -> Cell:
        settings = autoencoder_preset(self.preset, model, task)
        if self.is_quick:
            settings["batch_size"] = 64  # BN's would be few steps with so few graphs
            settings["epochs"] = 1 if model == SLOW else settings["epochs"]
        if timing and not self.is_quick:
            settings["epochs"] = TIMED_EPOCHS
        if "layers" in options:
            options["num_layers"] = options.pop("layers")
        config = asdict(
            AutoencoderConfig(
                model, task, options=changed_options(options, model, task), **settings
            )
        )
        del config["seed"]
        if self.is_quick:
            config["graphs"] = QUICK_GRAPHS
        if timing and not self.is_quick:
            config["purpose"] = TIMING
        else:
            config["scoring"] = QUICK_SCORING if self.is_quick else _paper_scoring(task)
        return Cell("autoencoder", config)

    def place(self, table: str, row: str, column: str, cell: Cell) -> Place:
        """A place in a table with the metric of its column."""
        paper = TABLES[table].get(row, {}).get(column)
        if cell.kind == "autoencoder":
            measure = {"rmse": "rmse", "r": "pearson"}[column.partition("-")[2]]
            return Place(row, column, cell, f"{SPARSE}.seeds.{measure}", paper=paper)
        task = column.partition("-")[0]
        metric = row if cell.kind == "baseline" else f"test_{METRICS[task]}"
        return Place(row, column, cell, metric, 100.0, paper)

    def table1(self) -> list[Place]:
        places = []
        for row, values in TABLES["table1"].items():
            if row == "GCN":  # before the first that sees edges, one that does not
                bags = {column: self.code(column, "bag") for column in ("tok", "tok-15")}
                places += [self.place("table1", BAG, *item) for item in bags.items()]
            for column in values:
                if row in CODE_MODELS:
                    cell = self.code(column, CODE_MODELS[row])
                else:
                    cell = Cell("baseline", {"task": column.partition("-")[0]})
                places.append(self.place("table1", row, column, cell))
        for column in ("tok", "tok-15"):
            cell = self.code(column, "dagnn", pool="all", readout="gated_sum")
            places.append(self.place("table1", GATED, column, cell))
        return places

    def table2(self) -> list[Place]:
        places = []
        for row, values in TABLES["table2"].items():
            for column in values:
                cell = self.autoencoder(column[:2], AUTOENCODERS[row])
                places.append(self.place("table2", row, column, cell))
            if row == "GCN":  # of which the paper's values are those of D-VAE's code
                for column in values:
                    cell = self.autoencoder(column[:2], "gcn", as_published=True)
                    place = self.place("table2", row, column, cell)
                    places.append(replace(place, row=AS_PUBLISHED))
        return places

    def table3(self) -> list[Place]:
        return self._ablations("table3", lambda row, column: ABLATIONS[row])

    def table4(self) -> list[Place]:
        return self._ablations("table4", lambda row, column: {"layers": int(row)})

    def table5(self) -> list[Place]:
        # The paper's other row is of the code of D-VAE's authors, which is not run here.
        return [
            self.place("table5", REIMPLEMENTED, column, self.autoencoder(column[:2], "d-vae"))
            for column in TABLES["table5"][REIMPLEMENTED]
        ]

    def table6(self) -> list[Place]:
        return self._ablations("table6", lambda row, column: {"bidirectional": row == "Yes"})

    def _ablations(
        self, table: str, options_of: Callable[[str, str], dict[str, Any]]
    ) -> list[Place]:
        return [
            self.place(table, row, column, self._dagnn(column, options_of(row, column)))
            for row, values in TABLES[table].items()
            for column in values
        ]

    def _dagnn(self, column: str, options: dict[str, Any]) -> Cell:
        if column.startswith(("na", "bn")):
            return self.autoencoder(column[:2], "dagnn", **options)
        return self.code(column, "dagnn", **options)

    def figure_time(self) -> list[Place]:
        places = []
        for row, minutes in TIMES["tok"].items():
            cell = self.code("tok", CODE_MODELS[row], timing=True)
            paper = Value(60 * minutes, 0.0)
            places.append(Place(row, "tok", cell, "train_seconds", paper=paper))
        for row, seconds in TIMES["na"].items():
            cell = self.autoencoder("na", AUTOENCODERS[row], timing=True)
            places.append(Place(row, "na", cell, "train_seconds", paper=Value(seconds, 0.0)))
        return places

    def figure_layers(self) -> list[Place]:
        return [
            Place(
                str(layers), "tok-15", self.code("tok-15", "dagnn", layers=layers), "test_f1",
                100.0, LAYERS.get(layers),
            )
            for layers in range(1, 11)
        ]  # fmt: skip

    def figure_network(self) -> list[Place]:
        settings = PAPER_WAY | (QUICK_SEARCH if self.is_quick else PAPER_SEARCH)
        rounds = {"rounds": 5, "batch": 20} if self.is_quick else {"rounds": 10, "batch": 50}
        config = {"task": "asia", "model": "dagnn", "score": "bic", **rounds, "search": settings}
        cell = Cell("search", config)
        return [Place("DAGNN", "bic", cell, "score", paper=Value(NETWORK_BIC["DAGNN"], 0.0))]

    def figure_lp(self) -> list[Place]:
        return [
            Place(row, "longest path", Cell("lengths", {"task": "lp", "share": share}), "mean")
            for row, share in (("all", 1.0), ("15 %", SHARE_15))
        ]

    def sweep(self) -> list[Place]:
        """The learning rates of the paper, on 15 % of the training split, for every model that
        Table 1 has there."""
        trained = {(p.row, p.column) for p in self.table1() if p.cell.kind == "code"}
        return [
            Place(
                f"{row} {rate:g}", f"{task}-15",
                self.code(f"{task}-15", model, rate=rate), f"valid_{metric}", 100.0,
            )
            for task, metric in METRICS.items()
            for row, model in CODE_MODELS.items() if (row, f"{task}-15") in trained
            for rate in LEARNING_RATES
        ]  # fmt: skip


def _paper_scoring(task: str) -> dict[str, Any]:
    options = {"fitc": process_options("fitc", "paper", task)}  # as the paper's
    return {"seeds": SCORING["paper"]["seeds"], "options": options}


def code_settings(run: CodeRun) -> dict[str, Any]:
    """The settings of a model of code: all but the seed, and whether steps are captured, which
    changes the speed (and, as another seed would, the masks of dropout) alone."""
    settings = {k: v for k, v in run.to_dict().items() if k not in ("seed", "captured")}
    settings["encoder"]["layers"] = run.encoder.num_layers
    return settings


def changed_options(options: Mapping[str, Any], model: str, task: str) -> dict[str, Any]:
    """The options of an autoencoder that are not its own for the task, so that it has one config
    whichever table or command asks for it."""
    own = {
        "num_layers": 2,
        # DAGNN goes both ways on BN, D-VAE on NA.
        "bidirectional": task == ("na" if model == "d-vae" else "bn"),
        "aggregator": "attention",
        "cell": "gru",
        "pool": "targets",
        "as_published": False,
    }
    return {name: value for name, value in options.items() if own.get(name) != value}


assert SHARE_15 == SWEEP_SHARE, "a sweep's runs are runs of the tables' 15 % columns"

TITLES = {
    "table1": "Table 1: token prediction and longest path",
    "table2": "Table 2: scores from latent spaces",
    "table3": "Table 3: ablations",
    "table4": "Table 4: number of layers",
    "table5": "Table 5: D-VAE implemented anew",
    "table6": "Table 6: both directions or one",
    "figure-time": "Figure 3: training time per epoch",
    "figure-layers": "Figure 4: more layers on TOK-15",
    "figure-network": "Figure 5: the Bayesian network found",
    "figure-lp": "Figure 6: lengths of longest paths",
    "sweep": "Learning rates on 15 % of the training split",
}
NAMES = tuple(name for name in TITLES if name != "sweep")


def make_entry(name: str, preset: str = "quick", rates: Rates | None = None) -> Entry:
    """A table or a figure by its name.

    Args:
        name: One of :data:`NAMES`, or ``"sweep"`` for the runs that choose learning rates.
        preset: ``"paper"``, as in its appendix, or ``"quick"``: real, but small.
        rates: Learning rates of models of code, by task and model, where they are not 1e-3; see
            :func:`best_rates`.
    """
    if name not in TITLES:
        raise ValueError(f"expected one of {', '.join(TITLES)}, got {name!r}")
    if preset not in PRESETS:
        raise ValueError(f"expected a preset of {', '.join(PRESETS)}, got {preset!r}")
    places = getattr(_Maker(preset, rates or {}), name.replace("-", "_"))()
    return Entry(name, TITLES[name], preset, tuple(places))


def best_rates(runs: Iterable[tuple[Cell, Mapping[str, Any]]], preset: str) -> Rates:
    """For each task and model of code, the learning rate that did best on the validation split,
    where several were tried on 15 % of the training split.

    Those that were tried in the same way are compared; of several ways the one with most counts.

    Args:
        runs: Cells and their metrics.
        preset: Of the cells to look at.
    """
    runs = [(cell, metrics) for cell, metrics in runs if cell.kind == "code" and cell.seed == 0]
    maker = _Maker(preset, {})
    rates = {}
    for task, metric in METRICS.items():
        for model in CODE_MODELS.values():
            rate = _best_rate(maker.code(f"{task}-15", model), runs, f"valid_{metric}")
            if rate is not None:
                rates[task, model] = rate
    return rates


def _best_rate(
    wanted: Cell, runs: Sequence[tuple[Cell, Mapping[str, Any]]], metric: str
) -> float | None:
    planned = wanted.trained_with({"learning_rate": None})
    ways: dict[Cell, dict[float, float]] = {}  # keys lack their learning rate
    for cell, metrics in runs:
        same_dropout = cell.dropout == wanted.dropout
        if metric in metrics and cell.same_model(wanted) and same_dropout and not cell.is_timing:
            way = cell.trained_with({"learning_rate": None})
            ways.setdefault(way, {})[cell.settings["learning_rate"]] = metrics[metric]
    if not ways:
        return None
    tried = ways[max(ways, key=lambda way: (len(ways[way]), way.same_training(planned)))]
    return max(tried, key=lambda rate: tried[rate]) if len(tried) > 1 else None
