"""``dagnn search na``: architectures with a high predicted accuracy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dagnn.cli.app import app
from dagnn.cli.choices import Device, DeviceOption
from dagnn.cli.console import messages, print_json, print_table, results

if TYPE_CHECKING:
    from dagnn.search.architectures import Proposal

__all__ = ["na", "search"]

search = typer.Typer(
    name="search", help="Search the latent space of an autoencoder.", no_args_is_help=True
)
app.add_typer(search)


@search.command()
def na(
    checkpoint: Annotated[Path, typer.Argument(help="last.ckpt of a run, or its folder.")],
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Architectures with accuracies; by default what the run was trained on.",
            show_default=False,
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Of the search.")] = 10,
    batch: Annotated[int, typer.Option(min=1, help="Latent points in a round.")] = 50,
    decodings: Annotated[int, typer.Option(min=1, help="Graphs from each point.")] = 1,
    top: Annotated[int, typer.Option(min=1, help="How many to show.")] = 15,
    seed: Annotated[int, typer.Option(min=0, help="Of all that is drawn.")] = 0,
    device: DeviceOption = Device.auto,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Propose neural architectures with a high predicted accuracy.

    Bayesian optimisation in the latent space of a trained autoencoder starts from the training
    graphs. What it finds and the data know, also among the test graphs, is looked up there.

    Examples:

    - `dagnn search na runs/na-dagnn-0`

    - `dagnn search na runs/na-dagnn-0 --rounds 5 --decodings 4 --json`
    """
    from dataclasses import asdict

    import torch

    from dagnn.autoencoders.fitting import load_autoencoder
    from dagnn.autoencoders.task_data import load_task, training_file
    from dagnn.datasets.architectures import load_architectures
    from dagnn.search.architectures import search_architectures
    from dagnn.search.latent_search import SearchSettings
    from dagnn.training import find_checkpoint

    path = find_checkpoint(checkpoint, "last.ckpt")
    place = device.value
    if place == "auto":
        place = "cuda" if torch.cuda.is_available() else "cpu"
    model, config = load_autoencoder(path, place)
    if config["autoencoder"]["task"] != "na":
        raise ValueError(f"expected an autoencoder of architectures in {path}, got another task's")
    file = data or training_file(path.parent, config)
    messages.print(f"with the graphs of {file}", style="dim", markup=False, highlight=False)
    train = load_task("na", file).train
    settings = SearchSettings(
        rounds=rounds, batch=batch, decodings=decodings, starts=max(500, 2 * batch), seed=seed
    )
    found: list[Proposal] = []
    for round_, proposals in search_architectures(model, train, load_architectures(file), settings):
        found += proposals
        best = f", the best predicted at {proposals[0].predicted:.4f}" if proposals else ""
        messages.print(
            f"round {round_.number}/{rounds}  {round_.valid} valid of {round_.decoded}, "
            f"{len(proposals)} new{best}  {round_.seconds:.1f} s",
            markup=False,
            highlight=False,
        )
    found.sort(key=lambda proposal: -proposal.predicted)
    best_known = float(train.score.max())
    if as_json:
        print_json(
            {
                "checkpoint": str(path),
                "data": str(file),
                "seed": seed,
                "best_of_training": best_known,
                "found": len(found),
                "in_data": sum(proposal.known is not None for proposal in found),
                "architectures": [asdict(proposal) for proposal in found[:top]],
            }
        )
        return
    _print(found[:top])
    results.print(f"best of the training graphs: {best_known:.4f}", highlight=False)


def _print(proposals: list[Proposal]) -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE)
    table.add_column("architecture", no_wrap=True)
    for title in ("predicted", "in the data", "round"):
        table.add_column(title, justify="right", no_wrap=True)
    for proposal in proposals:
        table.add_row(
            proposal.row.replace("[", "\\["),
            f"{proposal.predicted:.4f} ± {proposal.deviation:.4f}",
            "" if proposal.known is None else f"{proposal.known:.4f}",
            str(proposal.round),
        )
    print_table(table)
