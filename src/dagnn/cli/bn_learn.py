"""``dagnn bn learn``: a Bayesian network from a table."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dagnn.cli.app import app
from dagnn.cli.choices import Device, DeviceOption, QuietOption
from dagnn.cli.console import messages, print_json, print_table, results
from dagnn.cli.given_paths import check_run

if TYPE_CHECKING:
    from dagnn.search.learning_report import LearnedNetwork

__all__ = ["bn", "learn"]

bn = typer.Typer(name="bn", help="Bayesian networks.", no_args_is_help=True)
app.add_typer(bn)


class Score(enum.StrEnum):
    """See :class:`dagnn.bayesnet.scores.FamilyScores`."""

    bic = "bic"
    aic = "aic"
    bdeu = "bdeu"
    k2 = "k2"


class Pivots(enum.StrEnum):
    """See :func:`dagnn.search.pivots.draw_pivots`."""

    mixed = "mixed"
    random = "random"
    fixed = "fixed"


class Encoder(enum.StrEnum):
    """See :data:`dagnn.autoencoders.models.MODELS`."""

    dagnn = "dagnn"
    dvae = "d-vae"


@bn.command()
def learn(
    table: Annotated[Path, typer.Argument(help="CSV, .tsv or .parquet, of discrete values.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="DIR",
            help="Where files go. By default TABLE-network, here.",
            show_default=False,
        ),
    ] = None,
    score: Annotated[Score, typer.Option(help="What to maximise.")] = Score.bic,
    sample_size: Annotated[
        float, typer.Option("--sample-size", help="BDeu's equivalent sample size.")
    ] = 1.0,
    max_parents: Annotated[
        int | None, typer.Option(min=0, help="Of any variable; by default no limit.")
    ] = None,
    require: Annotated[
        list[str] | None,
        typer.Option(metavar="A:B", help="An edge from A to B that must be there; repeatable."),
    ] = None,
    forbid: Annotated[
        list[str] | None,
        typer.Option(metavar="A:B", help="An edge that must not be there; repeatable."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=0, help="Of the search.")] = 10,
    batch: Annotated[
        int, typer.Option(min=1, help="Graphs scored in a round; with --no-foresee, latent points.")
    ] = 50,
    missing: Annotated[
        bool, typer.Option("--missing", help="Take missing values as a category, drop no rows.")
    ] = False,
    bins: Annotated[
        int | None, typer.Option(min=2, help="Cut columns of numbers into so many levels.")
    ] = None,
    bootstrap: Annotated[
        int, typer.Option(min=0, help="Samples for the confidence in edges; 0 for none.")
    ] = 100,
    paper: Annotated[
        bool,
        typer.Option(
            "--paper",
            help="The paper's search: --pivots fixed --no-foresee --decodings 1 --no-repair "
            "--no-improve, and a sparse Gaussian process.",
        ),
    ] = False,
    pivots: Annotated[
        Pivots | None,
        typer.Option(
            help="Graphs to start from: along an order drawn for each (random) or the columns' "
            "(fixed), or half of them near ends of hill climbs (mixed, the default).",
            show_default=False,
        ),
    ] = None,
    foresee: Annotated[
        bool | None,
        typer.Option(
            "--foresee/--no-foresee",
            help="Choose what to score among many decoded graphs, not among points.",
        ),
    ] = None,
    decodings: Annotated[
        int | None, typer.Option(min=1, help="Graphs from each latent point; by default 4.")
    ] = None,
    repair: Annotated[
        bool | None,
        typer.Option("--repair/--no-repair", help="Make networks of decoded graphs that are none."),
    ] = None,
    improve: Annotated[
        bool | None,
        typer.Option("--improve/--no-improve", help="Climb from the best decoded graphs."),
    ] = None,
    encoder: Annotated[
        Encoder | None,
        typer.Option(help="The autoencoder to train; by default dagnn.", show_default=False),
    ] = None,
    autoencoder: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="A trained one to use: a run of `dagnn train bn` over as many variables. By "
            "default one is trained.",
            show_default=False,
        ),
    ] = None,
    num_pivots: Annotated[
        int | None, typer.Option(min=1, help="By default chosen by variables and device.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Likewise.")] = None,
    hidden: Annotated[int | None, typer.Option(min=1, help="Width of states; likewise.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of all that is drawn.")] = 0,
    device: DeviceOption = Device.auto,
    quiet: QuietOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Learn a Bayesian network from a table of discrete values.

    Searches the latent space of a DAG autoencoder, and compares what it finds with hill climbing
    and, up to 20 variables, with the optimum. The folder gets a page (`index.html`), pictures, BIF,
    DOT and JSON.

    Examples:

    - `dagnn bn learn data.csv`

    - `dagnn bn learn data.csv --score bdeu --require Smoking:Cancer --max-parents 3 -o cancer`
    """
    from dataclasses import replace

    from dagnn.bayesnet.table import read_table
    from dagnn.graph.files import check_folder

    folder = out or Path(f"{table.stem}-network")
    check_folder(folder)
    if autoencoder is not None:
        check_run(autoencoder)
    values = read_table(table, missing="category" if missing else "drop", bins=bins)

    from dagnn.search.learn_network import learn_network
    from dagnn.search.learning_settings import LearningSettings
    from dagnn.search.save_network import save_network

    settings = LearningSettings.paper() if paper else LearningSettings()
    options = {
        "pivots": None if pivots is None else pivots.value,
        "foresee": foresee,
        "decodings": decodings,
        "repair": repair,
        "improve": improve,
        "model": None if encoder is None else encoder.value,
        "num_pivots": num_pivots,
        "epochs": epochs,
        "hidden_channels": hidden,
    }
    given = {name: value for name, value in options.items() if value is not None}
    if autoencoder is not None and given.keys() & {"model", "epochs", "hidden_channels"}:
        raise ValueError(
            "expected --autoencoder, or how to train one (--encoder, --epochs, --hidden), got both"
        )
    network = learn_network(
        values,
        score=score.value,
        equivalent_sample_size=sample_size,
        rounds=rounds,
        batch=batch,
        seed=seed,
        require=require or (),
        forbid=forbid or (),
        max_parents=max_parents,
        bootstrap=bootstrap,
        settings=replace(settings, **given),  # type: ignore[arg-type]
        device=device.value,
        progress=not quiet,
        autoencoder=autoencoder,
    )
    files, left_out = save_network(network, folder, table.stem)
    for reason in left_out:
        messages.print(reason, markup=False, highlight=False)
    if as_json:
        assert network.report is not None
        print_json({**network.report.to_dict(), "files": [str(path) for path in files]})
        return
    _print(network, folder)


def _print(network: LearnedNetwork, folder: Path) -> None:
    from rich import box
    from rich.table import Table

    assert network.report is not None
    name = (network.score_name or "").upper()
    confidence, undirected = network.edge_confidence, network.cpdag.undirected
    shown = Table(box=box.SIMPLE)
    for title in ("edge", "direction", "confidence"):
        shown.add_column(title, justify="right" if title == "confidence" else "left")
    index = {variable: i for i, variable in enumerate(network.names)}
    for parent, child in network.edges:
        place = index[child], index[parent]
        shown.add_row(
            f"{parent} → {child}",
            "either" if undirected[place] else "as shown",
            "" if confidence is None else f"{confidence[place]:.2f}",
        )
    if network.edges:
        print_table(shown)
    else:
        results.print("no edges: the variables look independent", highlight=False)
    for note in network.report.notes:
        results.print(note, markup=False, highlight=False)
    results.print(
        f"{name} {network.score():,.3f}: {network.report.verdict()}\n{folder / 'index.html'}",
        markup=False,
        highlight=False,
    )
