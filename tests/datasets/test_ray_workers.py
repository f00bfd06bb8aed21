"""A corpus parsed by two Ray workers is the corpus that processes of this machine make."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from dagnn.datasets.ray_workers import connected, run_all_on_ray
from tests.datasets.test_corpus import build, write_projects
from tests.ray_cluster import two_workers, within

LIMIT = 300  # seconds; only a test that fails takes so long


@pytest.fixture(scope="module")
def local() -> Iterator[None]:
    with two_workers():
        yield


on_ray = partial(run_all_on_ray, address="local")


@pytest.mark.usefixtures("local")
def test_the_same_bytes_as_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # relative paths mean the same to workers
    write_projects(Path("code"))
    here = build(Path("code"), Path("here"))
    there = within(LIMIT, lambda: build(Path("code"), Path("there"), workers=None, run=on_ray))
    assert here == there
    for name in ("functions.parquet", "report.json"):
        assert Path("here", name).read_bytes() == Path("there", name).read_bytes()
    parts = [sorted(p.name for p in Path(out, "parts").iterdir()) for out in ("here", "there")]
    assert parts[0] == parts[1]


@pytest.mark.usefixtures("local")
def test_a_task_that_ends_its_process_costs_itself_alone() -> None:
    # The signal 0 does nothing, and number 9 cannot be caught.
    tasks = [(0,), (int(signal.SIGKILL),), (0,)]
    done = within(LIMIT, lambda: sorted(on_ray(signal.raise_signal, tasks)))
    assert done == [((0,), True), ((0,), True), ((9,), False)]


@pytest.mark.usefixtures("local")
def test_errors_are_raised() -> None:
    with pytest.raises(FileNotFoundError):
        within(LIMIT, lambda: list(on_ray(os.rmdir, [("/no/such/folder",)])))


def test_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr("dagnn.datasets.ray_workers.import_module", absent)
    with pytest.raises(ValueError, match="expected Ray to be installed"), connected("local"):
        pass


def test_either_workers_or_ray(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected workers or another way to run"):
        build(tmp_path, tmp_path / "out", workers=2, run=on_ray)
