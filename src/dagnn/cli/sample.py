"""``dagnn sample``: new graphs from a trained autoencoder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dagnn.cli.app import app
from dagnn.cli.console import messages, print_json, results

__all__ = ["sample"]


@app.command()
def sample(
    checkpoint: Annotated[Path, typer.Argument(help="last.ckpt of a run, or its folder.")],
    count: Annotated[int, typer.Option("-n", "--count", min=1, help="How many graphs.")] = 16,
    plot: Annotated[bool, typer.Option("--plot", help="Draw them, by level.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Draw them in this file: .png, .svg or .pdf.",
            show_default="samples.png",
        ),
    ] = None,
    likeliest: Annotated[
        bool, typer.Option("--likeliest", help="Take the likeliest decisions, do not draw them.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of all that is drawn.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the graphs as JSON.")] = False,
) -> None:
    """Decode random latent points of an autoencoder to graphs.

    A valid graph is printed as a row of its data set; how many are not valid by the rules of the
    task is told on stderr.

    Examples:

    - `dagnn sample runs/na-dagnn-0 -n 16 --plot`

    - `dagnn sample runs/na-dagnn-0/last.ckpt -n 1000 --json`
    """
    import torch

    from dagnn.autoencoders.fitting import load_autoencoder
    from dagnn.autoencoders.latent_plot import check_picture
    from dagnn.autoencoders.task_data import VALID, row_texts, type_names

    if plot or out is not None:
        out = out or Path("samples.png")
        picture = check_picture(out)
    model, config = load_autoencoder(checkpoint)
    task = config["autoencoder"]["task"]
    generator = torch.Generator().manual_seed(seed)
    z = model.sample_prior(count, generator)
    graphs = model.decode(z, stochastic=not likeliest, generator=generator)
    is_valid = VALID[task](graphs)
    valid = is_valid.tolist()
    texts = iter(row_texts(task, graphs[is_valid]))
    rows = [next(texts) if ok else None for ok in valid]
    messages.print(f"{sum(valid)} of {count} graphs are valid", markup=False, highlight=False)
    if out is not None:
        from dagnn.autoencoders.draw import draw_dags
        from dagnn.graph.files import replacing

        titles = ["" if ok else "not valid" for ok in valid]
        figure = draw_dags(graphs, type_names(task, graphs.num_types), titles)
        with replacing(out) as unfinished:
            figure.savefig(unfinished, format=picture, dpi=150)
        messages.print(f"drawn in {out}", markup=False, highlight=False)
    if as_json:
        print_json([_as_json(graphs, g, valid[g], rows[g]) for g in range(count)])
        return
    for row in rows:
        if row is not None:
            results.print(row, markup=False, highlight=False)


def _as_json(graphs: Any, g: int, valid: bool, row: str | None) -> dict[str, Any]:
    size = int(graphs.num_nodes[g])
    edges = graphs.adjacency[g, :size, :size].nonzero().flip(-1).tolist()
    return {"valid": valid, "row": row, "types": graphs.types[g, :size].tolist(), "edges": edges}
