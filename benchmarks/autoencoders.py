"""Training steps and decoding of the autoencoders, beside the loss that goes decision by decision.

For each model: the loss and its gradient are checked against the decision-by-decision loss in
double precision on the CPU; then whole training steps (loss, backward, clipping, Adam) are timed
in turns, ``captured`` (one CUDA graph, CUDA only), ``eager``, and ``step_by_step``; then a whole
epoch as it is trained, and decoding.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if __package__ in (None, ""):  # run as a file: the folder above is not on the path
    sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402

from benchmarks import step_by_step  # noqa: E402
from benchmarks.models import matmul_precision  # noqa: E402
from benchmarks.report import environment, write_json  # noqa: E402
from benchmarks.timing import Budget, Runner, Samples, interleave  # noqa: E402
from dagnn.autoencoders.fitting import BLOCK, AutoencoderConfig, IndexBlocks, preset  # noqa: E402
from dagnn.autoencoders.models import MODELS  # noqa: E402
from dagnn.autoencoders.task_data import default_file, load_task  # noqa: E402
from dagnn.autoencoders.train_step import CapturedStep, EagerStep  # noqa: E402
from dagnn.autoencoders.vae import DagVAE, VaeLoss  # noqa: E402
from dagnn.datasets.small_dags import SmallDags  # noqa: E402

TOLERANCE = 1e-4  # of the loss and the gradient in single precision; TF32's are reported alone


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--task", choices=("na", "bn"), default="na")
    add("--data", type=Path, metavar="FILE", help="the graphs (in $DAGNN_DATA or data/)")
    add("--models", nargs="+", choices=tuple(MODELS), default=["dagnn", "d-vae"], metavar="MODEL")
    add("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    add("--hidden", type=int, default=501)
    add("--repeats", type=int, default=7)
    add("--epochs", type=int, default=1, help="whole epochs to time; 0 for steps alone")
    add("--threads", type=int, help="PyTorch's threads on the CPU (its own default)")
    add("--seed", type=int, default=0)
    add("--json", type=Path, metavar="FILE", help="where results go")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    options = parse(arguments)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")  # TF32, as in training
    path = options.data or default_file(options.task)
    data = load_task(options.task, path)
    result: dict[str, Any] = {
        "command": [
            "benchmarks/autoencoders.py",
            *(sys.argv[1:] if arguments is None else arguments),
        ],
        "environment": environment(device),
        "data": {"file": path.name, "sha256": data.fingerprint, "graphs": len(data.train)},
        "models": {},
        "failed": {},
    }
    for name in options.models:
        found = result["models"][name] = {}
        try:
            measure(found, name, data.train, device, options)
        except Exception:  # reported, and the other models are measured all the same
            result["failed"][name] = traceback.format_exc()
            print(result["failed"][name], file=sys.stderr)
        if options.json is not None:
            write_json(result, options.json)
    _print(result)
    return result


def measure(
    out: dict[str, Any],
    name: str,
    graphs: SmallDags,
    device: torch.device,
    options: argparse.Namespace,
) -> None:
    """Write to :obj:`out` what is found, as it is found."""
    config = AutoencoderConfig(
        name,
        options.task,
        hidden_channels=options.hidden,
        seed=options.seed,
        **preset("paper", name, options.task),
    )
    graphs = graphs.to(device)
    steps = -(-len(graphs) // config.batch_size)
    out |= {"batch_size": config.batch_size, "steps_an_epoch": steps}
    out["check"] = check(config, graphs, device)
    times = time_steps(config, graphs, device, options.repeats)
    out["steps"] = {key: samples.to_json() for key, samples in times.items()}
    out["epoch_from_steps_s"] = {key: steps * s.median / 1e3 for key, s in times.items()}
    fastest = min(samples.median for samples in times.values())
    out["step_by_step_over_fastest"] = times["step_by_step"].median / fastest
    if options.epochs:
        out["epoch_s"] = time_epochs(config, graphs, device, options.epochs)
    out["decoded_a_second"] = time_decoding(config, graphs, device)
    if device.type == "cuda":
        out["kernels_a_step"] = count_kernels(config, graphs)


def make(
    config: AutoencoderConfig, graphs: SmallDags, device: torch.device
) -> tuple[DagVAE, torch.optim.Optimizer]:
    model = config.make(graphs.num_types, graphs.max_nodes).to(device)
    return model, torch.optim.Adam(model.parameters(), lr=config.rate, fused=True)


def batch(config: AutoencoderConfig, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(config.seed)
    noise = torch.randn(config.batch_size, config.latent_channels, generator=generator)
    return torch.arange(config.batch_size, device=device), noise.to(device)


def check(config: AutoencoderConfig, graphs: SmallDags, device: torch.device) -> dict[str, Any]:
    """Loss and gradient against those of the CPU, in double precision, decision by decision."""
    model, _ = make(config, graphs, device)
    index, noise = batch(config, device)
    index, noise = index[:8], noise[:8]
    some = graphs.index_select(index)
    exact = config.make(graphs.num_types, graphs.max_nodes).double()
    expected = step_by_step.loss(exact, some.to("cpu"), noise.cpu().double())
    exact_gradient = _flat(torch.autograd.grad(expected, list(exact.parameters())))
    errors: dict[str, Any] = {}
    for precision in ("fp32", "tf32") if device.type == "cuda" else ("fp32",):
        with matmul_precision(precision):
            loss = model.loss(some, noise).total
            gradient = _flat(torch.autograd.grad(loss, list(model.parameters())))
        errors[precision] = {
            "loss": abs(loss.item() / expected.item() - 1),
            "gradient": float((gradient - exact_gradient).norm() / exact_gradient.norm()),
        }
    if max(errors["fp32"].values()) > TOLERANCE:
        raise ValueError(
            f"expected relative errors of at most {TOLERANCE} for {config.model}, got {errors}"
        )
    return errors


def _flat(tensors: tuple[torch.Tensor, ...]) -> torch.Tensor:
    return torch.cat([tensor.flatten() for tensor in tensors]).double().cpu()


def time_steps(
    config: AutoencoderConfig, graphs: SmallDags, device: torch.device, repeats: int
) -> dict[str, Samples]:
    index, noise = batch(config, device)

    def runner(step: Callable[[torch.Tensor, torch.Tensor], Any]) -> Runner:
        return Runner(
            lambda: _discard(step(index, noise)), "tf32" if device.type == "cuda" else "fp32"
        )

    model, optimizer = make(config, graphs, device)
    slow = EagerStep(model, optimizer, graphs, config.clip)

    def loss(some: SmallDags, noise: torch.Tensor) -> VaeLoss:
        total = step_by_step.loss(model, some, noise)
        return VaeLoss(total, total, total)  # its parts are not looked at

    slow.loss = loss  # type: ignore[method-assign]
    runners = {"step_by_step": runner(slow)}
    runners["eager"] = runner(EagerStep(*make(config, graphs, device), graphs, config.clip))
    if device.type == "cuda":
        runners["captured"] = runner(
            CapturedStep(*make(config, graphs, device), graphs, config.clip)
        )
    return interleave(runners, device, repeats, 20.0, Budget(120.0))


def _discard(value: object) -> None:
    """A timed run returns nothing."""


def count_kernels(config: AutoencoderConfig, graphs: SmallDags) -> int:
    """Kernels of one eager step: what a captured one consists of."""
    device = graphs.device
    step = EagerStep(*make(config, graphs, device), graphs, config.clip)
    index, noise = batch(config, device)
    for _ in range(2):
        step(index, noise)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as record:
        step(index, noise)
        torch.cuda.synchronize()
    return sum(event.device_type == torch.autograd.DeviceType.CUDA for event in record.events())


def time_epochs(
    config: AutoencoderConfig, graphs: SmallDags, device: torch.device, epochs: int
) -> list[float]:
    """Seconds of whole epochs, as they are trained; an untimed one before captures the graphs."""
    kind = CapturedStep if device.type == "cuda" else EagerStep
    model, optimizer = make(config, graphs, device)
    step = kind(model, optimizer, graphs, config.clip)
    blocks = IndexBlocks(len(graphs), config.batch_size, BLOCK, config.seed)

    def epoch(most: int | None = None) -> float:
        begin = time.perf_counter()
        total = torch.zeros(3, device=device)
        for number, block in enumerate(blocks):
            if most is not None and most <= number < len(blocks) - 1:
                continue
            block = block.to(device)
            noise = torch.randn(*block.shape, config.latent_channels, device=device)
            for index, draw in zip(block, noise, strict=True):
                total += step(index, draw)
        if not bool(total.isfinite().all()):  # which waits for the device
            raise ValueError(f"expected a finite loss of {config.model}, got {total.tolist()}")
        return time.perf_counter() - begin

    epoch(most=1)
    return [epoch() for _ in range(epochs)]


def time_decoding(config: AutoencoderConfig, graphs: SmallDags, device: torch.device) -> float:
    model, _ = make(config, graphs, device)
    size = 2000 if device.type == "cuda" else 256
    z = torch.randn(size, config.latent_channels, device=device)
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        int(model.decode(z).num_nodes.sum())  # which waits for the device
        seconds.append(time.perf_counter() - begin)
    return size / min(seconds)


def _print(result: dict[str, Any]) -> None:
    table = Table("model", "step by step", "eager", "captured", "ratio", "epoch", "decoded/s")
    for name, found in result["models"].items():
        if "decoded_a_second" not in found:
            continue
        steps = found["steps"]
        times = [
            f"{steps[key]['median_ms']:.2f} ms" if key in steps else "–"
            for key in ("step_by_step", "eager", "captured")
        ]
        epoch = min(found["epoch_s"]) if "epoch_s" in found else None
        table.add_row(
            name,
            *times,
            f"{found['step_by_step_over_fastest']:.1f}",
            "–" if epoch is None else f"{epoch:.2f} s",
            f"{found['decoded_a_second']:.0f}",
        )
    Console(width=None if sys.stdout.isatty() else 120).print(table)


if __name__ == "__main__":
    sys.exit(bool(main()["failed"]))
