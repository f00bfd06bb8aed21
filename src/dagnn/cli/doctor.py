"""``dagnn doctor``: what is installed and found here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dagnn.cli.app import app
from dagnn.cli.console import print_json, results

__all__ = ["doctor", "examine"]

PACKAGES = (
    "dagnn", "torch", "torch_geometric", "lightning", "triton", "numpy", "scipy", "numba", "pandas",
    "pyarrow", "networkx", "matplotlib", "gpytorch", "safetensors", "ray",
)  # fmt: skip


@app.command()
def doctor(
    data_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="By default $DAGNN_DATA or data.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Show versions, devices, which backend would run, and which data is there.

    Examples:

    - `dagnn doctor`

    - `dagnn doctor --data-dir data --json`
    """
    found = examine(data_dir)
    if as_json:
        print_json(found)
        return

    def line(left: str, right: object) -> None:
        results.print(f"{left:<28} {right}", markup=False, highlight=False)

    for package, version in found["versions"].items():
        line(package, version or "not installed")
    devices = found["devices"]
    line("CPU", f"{devices['cpus']} cores, {devices['threads']} threads")
    line("GPU", ", ".join(devices["gpus"]) or "none that torch finds")
    for device, backend in found["backends"].items():
        line(f"backend, {device}", backend)
    for data in found["data"].values():
        line(data["what"], data["path"] or f"missing; {data['command']}")


def examine(data: Path | None = None) -> dict[str, Any]:
    """Versions, devices, the backend of DAGNN on each, and data sets with the commands that get
    what is missing.

    Args:
        data: The folder of data sets; see :func:`dagnn.experiments.data_files.data_folder`.
    """
    import os
    import platform

    import torch

    from dagnn.experiments.data_files import DATA
    from dagnn.ops.backends import choose_backend

    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    kinds = ["cpu", "cuda"] if gpus else ["cpu"]
    attention = ("attention", "gru")
    return {
        "versions": {"python": platform.python_version(), **{p: _version(p) for p in PACKAGES}},
        "devices": {
            "cpus": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "gpus": gpus,
            "cuda": torch.version.cuda,
        },
        "backends": {
            kind: choose_backend("auto", attention, torch.device(kind), torch.float32, hidden=300)
            for kind in kinds
        },
        "data": {name: _data(name, data) for name in DATA},
    }


def _version(package: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _data(name: str, given: Path | None) -> dict[str, Any]:
    from dagnn.experiments.data_files import DATA, data_folder, find_data

    folder = data_folder(given)
    try:
        path = str(find_data(name, folder))
    except FileNotFoundError:
        path = None
    command = None if path else DATA[name].command.format(folder=folder)
    return {"what": DATA[name].what, "path": path, "command": command}
