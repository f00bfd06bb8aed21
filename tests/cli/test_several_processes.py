"""--devices 2: the command starts itself a second time, and tells what one process tells."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dagnn.cli import app
from tests.autoencoders.na_file import write_architectures
from tests.tasks.small_code import write_parquet

TIMEOUT = 300  # seconds; only a test that fails takes so long
TIMES = ("seconds", "train_seconds")


def in_one(*words: object) -> dict[str, object]:
    result = CliRunner().invoke(app, [*map(str, words), "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def in_two(*words: object) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-m", "dagnn", *map(str, words), "--json", "--devices", "2"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    return json.loads(done.stdout)  # of one process: two results would be no JSON


def rows(folder: Path) -> list[dict[str, float]]:
    found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: row[name] for name in row if name not in TIMES} for row in found]


def assert_like(one: Path, two: Path) -> None:
    for found, wanted in zip(rows(two), rows(one), strict=True):
        assert found == pytest.approx(wanted, rel=1e-4)


def test_tok(tmp_path: Path) -> None:
    write_parquet(tmp_path / "small.parquet")  # 48 functions to train on: 20, 20 and 8
    command = ["train", "tok", "--data", tmp_path / "small.parquet", "--device", "cpu",
               "--epochs", 2, "--channels", 8, "--batch-size", 20]  # fmt: skip
    one = in_one(*command, "--out", tmp_path / "one")
    two = in_two(*command, "--out", tmp_path / "two")
    assert_like(tmp_path / "one" / "seed0", tmp_path / "two" / "seed0")
    for results in (one, two):
        results["mean"].pop("train_seconds")  # type: ignore[attr-defined]
    assert two["mean"] == pytest.approx(one["mean"], rel=1e-4)
    assert two["runs"][0]["hardware"]["processes"] == 2  # type: ignore[index]


def test_na(tmp_path: Path) -> None:
    write_architectures(tmp_path / "na.txt", 203)  # 182 to train on: for one process, one is left
    command = ["train", "na", "--data", tmp_path / "na.txt", "--device", "cpu", "--quiet",
               "--epochs", 2, "--hidden", 8, "--latent", 4, "--batch-size", 181]  # fmt: skip
    in_one(*command, "--out", tmp_path / "one")
    in_two(*command, "--out", tmp_path / "two")
    assert_like(tmp_path / "one", tmp_path / "two")


@pytest.mark.parametrize("kill", [os.kill, os.killpg])  # the first process, or all by Ctrl-C
def test_an_interruption_is_told_once(kill: Callable[[int, int], None], tmp_path: Path) -> None:
    write_parquet(tmp_path / "small.parquet")
    command = ["train", "lp", "--data", tmp_path / "small.parquet", "--device", "cpu", "--out",
               tmp_path, "--epochs", 10**6, "--channels", 8, "--batch-size", 16]  # fmt: skip
    with subprocess.Popen(
        [sys.executable, "-m", "dagnn", *map(str, command), "--devices", "2"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as training:
        while not (tmp_path / "seed0" / "last.ckpt").exists() and training.poll() is None:
            time.sleep(0.1)
        kill(training.pid, signal.SIGINT)
        _, told = training.communicate(timeout=TIMEOUT)  # until the second process has ended, too
    assert training.returncode == 130
    lines = [line for line in told.splitlines() if line and not line.startswith("epoch ")]
    words = "dagnn: interrupted; the same command goes on from what was kept, if anything"
    assert lines == [words], told


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--captured", "--devices", "2"], "expected one process for captured steps"),
        (["--batch-size", "7", "--devices", "2"], "a batch size that 2 processes can share"),
    ],
)
def test_refused_before_anything_starts(options: list[str], message: str, tmp_path: Path) -> None:
    write_parquet(tmp_path / "small.parquet")
    command = ["train", "tok", "--data", str(tmp_path / "small.parquet"), "--device", "cpu"]
    with pytest.raises(ValueError, match=message):
        CliRunner().invoke(app, [*command, *options], catch_exceptions=False)
