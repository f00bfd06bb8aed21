"""A picture of a latent space: its two principal directions, coloured by score."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from matplotlib.figure import Figure  # unlike pyplot, it needs no screen
from torch import Tensor

from dagnn.training.checkpoints import write_atomically

__all__ = ["check_picture", "draw_latent", "principal_components"]

MOST_POINTS = 5000


def principal_components(z: Tensor, components: int = 2) -> tuple[Tensor, Tensor]:
    """Points in the directions of their largest variance.

    The sign of a direction is such that its largest coefficient is positive.

    Args:
        z: Points. ``[N, D]``
        components: The number of directions :math:`C`, at most ``min(N, D)``.

    Returns:
        The projected points, ``[N, C]``, and the share of the variance of each direction, ``[C]``.
    """
    if z.dim() != 2 or not 1 <= components <= min(z.shape):
        raise ValueError(
            f"expected points [N, D] with N and D at least {components}, got {list(z.shape)}"
        )
    centred = z.double() - z.double().mean(dim=0)
    _, singular, directions = torch.linalg.svd(centred, full_matrices=False)
    largest = directions.gather(1, directions.abs().argmax(dim=1, keepdim=True))
    directions = directions * torch.where(largest < 0, -1.0, 1.0)
    variance = singular.square()
    share = variance / variance.sum().clamp_min(torch.finfo(torch.double).tiny)
    return centred @ directions[:components].t(), share[:components]


def draw_latent(
    z: Tensor,
    score: Tensor,
    path: str | os.PathLike[str],
    *,
    label: str = "score",
    title: str | None = None,
    seed: int = 0,
) -> None:
    """Draw latent points in their two principal directions, coloured by score.

    Of more than 5,000 points, that many are drawn at random; the directions are those of all. The
    colours span the middle 98 % of the scores, so that a few odd ones do not use them all up.

    Args:
        z: Latent points. ``[N, D]``
        score: Their scores. ``[N]``
        path: A file, of the format that its suffix says: ``.png``, ``.svg``, ``.pdf``.
        label: What the score is.
        title: Above the picture.
        seed: Of the choice of points.
    """
    if score.shape != z.shape[:1]:
        raise ValueError(f"expected one score per point, [{len(z)}], got {list(score.shape)}")
    form = check_picture(path)
    projected, share = principal_components(z.detach().cpu())
    score = score.detach().double().cpu()
    low, high = torch.quantile(score, torch.tensor([0.01, 0.99], dtype=torch.double)).tolist()
    shown = torch.randperm(len(z), generator=torch.Generator().manual_seed(seed))[:MOST_POINTS]
    figure = Figure(figsize=(6.4, 5.2), layout="constrained")
    ax = figure.subplots()
    x, y = projected[shown].t().numpy()
    points = ax.scatter(
        x, y, s=6, c=score[shown].numpy(), cmap="viridis", vmin=low, vmax=high, linewidths=0
    )
    figure.colorbar(points, ax=ax, label=label, extend="both")
    for axis, name, part in ((ax.xaxis, "first", share[0]), (ax.yaxis, "second", share[1])):
        axis.set_label_text(f"{name} principal direction ({part:.0%} of the variance)")
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_title(title or f"{len(z):,} graphs in the latent space", loc="left")
    write_atomically(path, lambda file: figure.savefig(file, format=form, dpi=110))


def check_picture(path: str | os.PathLike[str]) -> str:
    """The format of a picture to be drawn, once its folder is there; to know before long work."""
    path = Path(path)
    form = path.suffix.removeprefix(".").lower()
    known = Figure().canvas.get_supported_filetypes()
    if form not in known:
        raise ValueError(f"expected a picture's name to end in {', '.join(known)}, got {path.name}")
    if path.is_dir():
        raise ValueError(f"expected a file to draw in, got the folder {path}")
    path.parent.mkdir(parents=True, exist_ok=True)
    return form
