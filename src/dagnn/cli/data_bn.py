"""``dagnn data bn``: random Bayesian networks with their scores."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

from dagnn.cli.app import data
from dagnn.cli.console import messages, print_json, results

__all__ = ["bn"]


class Order(enum.StrEnum):
    """See :func:`dagnn.datasets.random_dags.random_dags`."""

    fixed = "fixed"
    random = "random"
    uniform = "uniform"


class Score(enum.StrEnum):
    """See :class:`dagnn.bayesnet.scores.FamilyScores`."""

    bic = "bic"
    aic = "aic"
    bdeu = "bdeu"
    k2 = "k2"


@data.command()
def bn(
    output: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")] = Path(
        "bn.txt"
    ),
    variables: Annotated[
        Path | None,
        typer.Option(
            help="A table of discrete values, CSV or Parquet. By default 5,000 rows of the network "
            "Asia, drawn with the seed.",
            show_default=False,
        ),
    ] = None,
    graphs: Annotated[int, typer.Option(min=1, help="How many networks.")] = 200_000,
    order: Annotated[
        Order,
        typer.Option(
            help="Edges go along the columns (fixed), along an order drawn for each graph "
            "(random), or every DAG has the same chance (uniform)."
        ),
    ] = Order.fixed,
    score: Annotated[Score, typer.Option(help="What scores a network on the table.")] = Score.bic,
    missing: Annotated[
        bool, typer.Option("--missing", help="Take missing values as a category, drop no rows.")
    ] = False,
    bins: Annotated[
        int | None, typer.Option(min=2, help="Cut columns of numbers into so many levels.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of all that is drawn.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Draw random Bayesian networks over a table's columns and score them.

    Each line of the file is a network in the format of D-VAE's `asia_200k.txt`.

    Examples:

    - `dagnn data bn -o asia_200k.txt`

    - `dagnn data bn --variables data.csv --graphs 50000 --order uniform --seed 1`
    """
    from dagnn.bayesnet.generate import generate_networks
    from dagnn.bayesnet.scores import FamilyScores
    from dagnn.bayesnet.table import Table, read_table
    from dagnn.datasets.bayesian_networks import sample_asia, save_bayesian_networks

    if output.is_dir():
        raise ValueError(f"expected a file to write, got the folder {output}; name a file in it")
    if output.exists() and not force:
        raise ValueError(
            f"expected a new file, got {output}, which is there already; give another name, or "
            "--force to replace it"
        )
    if variables is None:
        table = Table.from_frame(sample_asia(seed=seed))
    else:
        table = read_table(variables, missing="category" if missing else "drop", bins=bins)
    for note in table.notes:
        messages.print(note, markup=False, highlight=False)
    networks = generate_networks(
        FamilyScores(table, score.value), graphs, order=order.value, seed=seed
    )
    save_bayesian_networks(output, networks)
    scores = networks.score
    summary = {
        "file": str(output),
        "graphs": graphs,
        "variables": list(table.names),
        "rows": table.num_rows,
        "order": order.value,
        "score": score.value,
        "mean": scores.mean().item(),
        "std": scores.std(correction=0).item(),
        "best": scores.max().item(),
        "seed": seed,
    }
    if as_json:
        print_json(summary)
        return
    results.print(
        f"{output}: {graphs:,} networks over {table.num_columns} variables, {score.value.upper()} "
        f"{summary['mean']:,.3f} ± {summary['std']:,.3f}, best {summary['best']:,.3f}",
        markup=False,
        highlight=False,
    )
