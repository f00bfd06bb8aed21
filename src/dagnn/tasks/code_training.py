"""Train, sweep, repeat and evaluate models of code."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dagnn.datasets.code_dataset import CodeDataset
from dagnn.graph.flat import FlatGraphs
from dagnn.graph.loader import FlatLoader
from dagnn.graph.sampler import DepthBucketSampler, GraphBatchSampler, rank_and_world_size
from dagnn.tasks.code_protocol import SWEEP_SHARE, CodeRun
from dagnn.tasks.graph_task import CodeTask
from dagnn.tasks.longest_path import LongestPath
from dagnn.tasks.token_prediction import TokenPrediction
from dagnn.training import (
    NonFiniteLossError,
    find_checkpoint,
    fit,
    load_weights,
    median_time,
    read_checkpoint,
    run_record,
    write_json,
)
from dagnn.training.fit import accelerator, matmul_precision
from dagnn.training.processes import add_up, from_first, is_first, join, number

__all__ = ["choose_device", "evaluate", "load_task", "repeat", "sweep", "train_code"]

EVALUATION_BATCH = 256
POOL = 50  # batches; see DepthBucketSampler
Load = Callable[[str, float], CodeDataset]  # of edges and train_share
KINDS: dict[str, type[TokenPrediction] | type[LongestPath]] = {
    "tok": TokenPrediction,
    "lp": LongestPath,
}


def train_code(
    run: CodeRun,
    data: CodeDataset,
    folder: str | Path,
    *,
    source: str | Path | None = None,
    device: str = "auto",
    devices: int = 1,
    num_nodes: int = 1,
    progress: bool = True,
    checkpoint_every_steps: int | None = None,
    shared: bool = False,
) -> dict[str, Any]:
    """Train a model, and evaluate the best epoch's weights on validation and test split.

    The folder is that of :func:`dagnn.training.fit`, with a ``record.json`` that is also returned:
    config, seed, metrics, data, versions, hardware, commit and duration. Called again, it goes on;
    the record of a finished run stays as it is, whichever test split comes with the data.

    Args:
        run: What to do.
        data: The data, with the edges and the share of the training split that :obj:`run` names.
        folder: Where the run is kept.
        source: Where the data are; see :func:`dagnn.training.fit`.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        devices, num_nodes: See :func:`dagnn.training.fit`. The processes share each batch of
            :obj:`run`, so that its size and the results stay the same.
        progress: Whether to show it.
        checkpoint_every_steps, shared: See :func:`dagnn.training.fit`.
    """
    if run.captured and devices * num_nodes > 1:
        raise ValueError("expected one process for captured steps, got several; leave out captured")
    if run.batch_size % (devices * num_nodes):
        raise ValueError(
            f"expected a batch size that {devices * num_nodes} processes can share evenly, got "
            f"{run.batch_size}"
        )
    join(accelerator(device), devices, num_nodes)
    for name in ("edges", "train_share"):
        wanted, there = getattr(run, name), getattr(data, name)
        if wanted != there:
            raise ValueError(f"expected data with {name}={wanted!r}, got {there!r}")
    for name in ("train", "valid", "test"):
        _check_split(name, getattr(data, name))
    folder = Path(folder)
    where = choose_device(device)
    if run.precision == "tf32" and where.type == "cpu":
        raise ValueError(
            "expected a GPU for the precision 'tf32', which its matrix units have, got the CPU; "
            "use '32'"
        )
    # Whole names are for metrics alone, and padded batches have no place for them.
    train = data.train.without("name_tokens")
    train = _resident(_sample(train, run.train_limit, run.seed), where)
    valid = _resident(_sample(data.valid, run.valid_limit, run.seed), where)
    module = _make_task(run, data)
    captured = _captures(run, module, where, devices * num_nodes)
    if captured:
        module.capture_steps(run.clip, bf16=run.precision == "bf16")
    config = {
        # Whether steps are captured changes the speed, and the masks of dropout as another seed
        # would: a run may go on the other way.
        **{name: value for name, value in run.to_dict().items() if name != "captured"},
        "data": {"name": data.name, "fingerprint": data.fingerprint, "train": len(train)},
    }
    result = fit(
        module,
        _training_loader(run, train, module.encoder.is_recurrent, where, captured),
        _evaluation_loader(valid, module.encoder.is_recurrent, where),
        folder=folder,
        epochs=run.epochs,
        monitor=f"valid_{module.metric}",
        mode="max",
        patience=run.patience,
        clip=run.clip,
        precision=run.precision,
        seed=run.seed,
        config=config,
        source=source,
        device=where.type,
        devices=devices,
        num_nodes=num_nodes,
        progress=progress,
        checkpoint_every_steps=checkpoint_every_steps,
        shared=shared,
    )
    if result.was_finished and (kept := from_first(lambda: _read_record(folder, config))):
        return kept
    load_weights(module, result.best_checkpoint)
    test = evaluate(module, data.test, device=device, precision=run.precision)
    metrics = {
        **{name: value for name, value in result.best.items() if name.startswith("valid_")},
        **{f"test_{name}": value for name, value in test.items()},
        "epochs": len(result.history),
        "best_epoch": result.best["epoch"],
        **median_time(result.history),
        "parameters": sum(p.numel() for p in module.parameters()),
    }
    record = run_record(
        config,
        metrics,
        seed=run.seed,
        seconds=result.seconds,
        data={"name": data.name, "fingerprint": data.fingerprint},
        origins=result.origins,
    )
    if any(row.get("shared") for row in result.history):
        record["shared"] = True
    if is_first():
        write_json(folder / "record.json", record)
    return record


def _read_record(folder: Path, config: dict[str, Any]) -> dict[str, Any] | None:
    """That of a run with this config, if there is one: who made it, and when, stands there."""
    try:
        record = json.loads((folder / "record.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):  # ended before it was written
        return None
    same = isinstance(record, dict) and record.get("config") == json.loads(json.dumps(config))
    return record if same else None


def repeat(
    run: CodeRun, load: Load, folder: str | Path, seeds: Sequence[int], **options: Any
) -> dict[str, Any]:
    """Train with several seeds; metrics are means and standard deviations over them."""
    folder = Path(folder)
    data = load(run.edges, run.train_share)
    records = [
        train_code(replace(run, seed=seed), data, folder / f"seed{seed}", **options)
        for seed in seeds
    ]
    metrics = [record["metrics"] for record in records]
    # The time of an epoch is known of those alone that had their device to themselves.
    known = [name for name in metrics[0] if all(name in of for of in metrics)]
    values = {name: [float(of[name]) for of in metrics] for name in known}
    summary = {
        "config": records[0]["config"],
        "seeds": list(seeds),
        "mean": {name: statistics.fmean(of) for name, of in values.items()},
        "std": {name: statistics.stdev(of) if len(of) > 1 else None for name, of in values.items()},
        "runs": records,
    }
    if is_first():
        write_json(folder / "result.json", summary)
    return summary


def sweep(
    run: CodeRun, load: Load, folder: str | Path, rates: Sequence[float], **options: Any
) -> tuple[float, dict[float, float | None]]:
    """The learning rate with the best validation metric on 15% of the training split, and the
    metric of each; of one that diverged, None."""
    folder = Path(folder)
    share = min(run.train_share, SWEEP_SHARE)
    data = load(run.edges, share)
    metric = f"valid_{KINDS[run.task].metric}"
    scores: dict[float, float | None] = {}
    for rate in rates:
        trial = replace(run, learning_rate=rate, train_share=share)
        try:
            record = train_code(trial, data, folder / f"rate{rate:g}", **options)
        except NonFiniteLossError:
            scores[rate] = None  # it diverged; others may not
        else:
            scores[rate] = float(record["metrics"][metric])
    finite = {rate: score for rate, score in scores.items() if score is not None}
    if not finite:
        raise ValueError(f"expected a learning rate that does not diverge, but all did: {scores}")
    best = max(finite, key=lambda rate: finite[rate])
    if is_first():
        write_json(folder / "sweep.json", {"metric": metric, "best": best, "scores": scores})
    return best, scores


@torch.no_grad()
def evaluate(
    module: CodeTask, graphs: FlatGraphs, *, device: str = "auto", precision: str = "32"
) -> dict[str, float]:
    """Means over the graphs of all that a task reports; several processes share the graphs."""
    _check_split("evaluated", graphs)
    where = choose_device(device)
    module.to(where).eval()
    totals: dict[str, torch.Tensor] = {}
    count = torch.zeros((), dtype=torch.double, device=where)
    for batch in _evaluation_loader(graphs, module.encoder.is_recurrent, where):
        with _in_precision(precision, where):
            values = module.evaluate_batch(batch)
        for name, value in values.items():
            totals[name] = totals.get(name, 0.0) + value.double() * batch.num_graphs
        count += batch.num_graphs
    add_up(count)
    return {name: float(add_up(total) / count) for name, total in totals.items()}


def load_task(path: str | Path) -> CodeTask:
    """The task of a checkpoint, or of a run's folder (its ``best.ckpt``), with its weights, ready
    to evaluate."""
    path = find_checkpoint(path)
    checkpoint = read_checkpoint(path)
    settings = checkpoint.get("task")
    if not isinstance(settings, dict) or settings.get("kind") not in KINDS:
        raise ValueError(
            f"expected a checkpoint of {' or '.join(KINDS)}, got {path}; train one with "
            "`dagnn train tok`"
        )
    try:
        module = KINDS[settings["kind"]].from_settings(settings)
        module.load_state_dict(checkpoint["state_dict"])
    except (KeyError, TypeError, RuntimeError) as error:
        raise ValueError(
            f"expected a checkpoint of this version of dagnn, got {path}: {error}"
        ) from error
    return module.eval()


def choose_device(device: str) -> torch.device:
    """The GPU of this process if one is asked for, or for ``"auto"`` if there is one."""
    kind = accelerator(device)
    # By its number: a loader's thread would take the first one.
    return torch.device(kind, torch.cuda.current_device()) if kind == "cuda" else torch.device(kind)


def _captures(run: CodeRun, module: CodeTask, device: torch.device, processes: int) -> bool:
    """Whether steps are captured: as the run says, or wherever they can be."""
    fused = module.encoder.is_fused
    possible = _can_capture(device, fused)
    # What is too wide for its fused path looks at schedules on the host.
    with _in_precision(run.precision, device):
        too_wide = fused and module.encoder.runs_reference(device)
    if run.captured is None:
        return possible and not too_wide and processes == 1 and module.encoder.is_static
    if run.captured and not possible:
        wanted = "a CUDA device with Triton" if fused else "a CUDA device"
        raise ValueError(f"expected {wanted} for captured steps, got {device}")
    if run.captured and too_wide:
        raise ValueError(
            f"expected a model that fits its fused path in {run.precision} for captured steps, got "
            f"{run.encoder.channels} channels; take a lower precision, or leave out captured"
        )
    return run.captured


@contextmanager
def _in_precision(precision: str, device: torch.device) -> Iterator[None]:
    half = torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")
    with matmul_precision(precision), half:
        yield


def _can_capture(device: torch.device, needs_triton: bool) -> bool:
    return device.type == "cuda" and (not needs_triton or find_spec("triton") is not None)


def _check_split(name: str, graphs: FlatGraphs) -> None:
    if not len(graphs):
        raise ValueError(
            f"expected functions in the {name} split, got none; splits take whole projects: build "
            "the corpus from more of them, with another --seed, or with `--split-by file`"
        )


def _make_task(run: CodeRun, data: CodeDataset) -> CodeTask:
    torch.manual_seed(run.seed)
    options: dict[str, Any] = {"edges": run.edges, "learning_rate": run.learning_rate}
    if run.task == "tok":
        return TokenPrediction(run.encoder, data.vocabulary, **options)
    longest = int(data.train.column("longest_path").max())
    return LongestPath(run.encoder, data.vocabulary, longest, **options)


def _sample(graphs: FlatGraphs, limit: int | None, seed: int) -> FlatGraphs:
    if limit is None or len(graphs) <= limit:
        return graphs
    return graphs.select(np.sort(np.random.default_rng(seed).permutation(len(graphs))[:limit]))


def _resident(graphs: FlatGraphs, device: torch.device) -> FlatGraphs:
    """The graphs with their attributes on the device, if these take no more than half of what is
    free there; their schedules may then take half of the rest."""
    if device.type != "cuda":
        return graphs
    size = sum(graphs.column(name).nbytes for name in graphs.keys())  # noqa: SIM118
    free, _ = torch.cuda.mem_get_info(device)
    return graphs.to(device) if size < free / 2 else graphs


def _training_loader(
    run: CodeRun, graphs: FlatGraphs, recurrent: bool, device: torch.device, padded: bool
) -> FlatLoader:
    processes = number()
    size = run.batch_size // processes
    # Similar depths save a recurrent model most of its levels, but where depth is the label,
    # batches of one class each would be bad to learn from.
    sampler = (
        DepthBucketSampler(graphs.depths, size, pool=POOL * processes, seed=run.seed)
        if recurrent and run.task == "tok"
        else GraphBatchSampler(len(graphs), size, seed=run.seed)
    )
    return FlatLoader(
        graphs, batch_sampler=sampler, device=device, schedule=recurrent, padded=padded
    )


def _evaluation_loader(graphs: FlatGraphs, recurrent: bool, device: torch.device) -> FlatLoader:
    batches = _by_depth(graphs.depths)
    return FlatLoader(graphs, batch_sampler=batches, device=device, schedule=recurrent)


def _by_depth(depths: torch.Tensor) -> list[list[int]]:
    """All graphs once, in batches of like depth and size, as many for each process; graphs that
    are fewer than the processes go to all of them."""
    rank, processes = rank_and_world_size()
    order = torch.argsort(depths, stable=True)
    if len(order) < processes:
        rank, processes = 0, 1
    rounds = math.ceil(len(order) / (EVALUATION_BATCH * processes))
    return [part.tolist() for part in order.tensor_split(rounds * processes)[rank::processes]]
