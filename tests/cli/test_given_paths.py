"""What is not there is told at once, without the seconds that heavy imports take."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
from dagnn.cli import main

try:
    main()
finally:
    print("torch" in sys.modules)
"""


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            "evaluate nowhere",
            "expected a checkpoint, or the folder of a run, got nowhere, which is",
        ),
        (
            "evaluate .",
            "expected a corpus of code, but neither corpus nor data/corpus is there",
        ),
        ("evaluate . --data x", "expected a corpus of code, got x, which is not there; make one"),
        ("train lp", "expected a corpus of code, but neither corpus nor data/corpus is there"),
        ("train tok --data x", "expected a corpus of code, got x, which is not there"),
        ("name a.py", "expected the checkpoint of a model at runs/tok/dagnn/seed0/best.ckpt"),
        ("name a.py --checkpoint x", "expected the checkpoint of a model at x"),
        ("name nothing.py --checkpoint .", "nothing.py"),
        ("embed a.py --out x.npy --checkpoint x", "expected the checkpoint of a model at x"),
        ("embed nothing.py --out x.npy --checkpoint .", "nothing.py"),
        ("train tok --out a.py", "expected a folder to write to (--out), got the file a.py"),
        ("train lp --out a.py/x", "expected a folder to write to (--out), got the file "),
        ("train na --out a.py", "expected a folder to write to (--out), got the file a.py"),
        ("train bn --out a.py", "expected a folder to write to (--out), got the file a.py"),
        ("train predictor na --out a.py", "a folder to write to (--out), got the file a.py"),
        ("data get na --out a.py", "a folder to write to (--out), got the file a.py"),
        ("evaluate a.py", "expected a checkpoint (best.ckpt or last.ckpt of a run, or its folder)"),
        ("bn learn nothing.csv", "got nothing.csv, which is not there"),
        ("bn learn t.csv --autoencoder x", "or the folder of a run, got x, which is not there"),
        ("report --results a.py", "expected a folder of records, got a.py, which is a file"),
        ("report", "expected a folder of records, got results/cells, which is not there"),
    ],
)
def test_without_torch(
    command: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DAGNN_CHECKPOINT", raising=False)
    (tmp_path / "a.py").write_text("def f(): pass\n")
    (tmp_path / "t.csv").write_text("a,b\n0,1\n1,0\n")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *command.split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("dagnn: error: expected ")
    assert message in line
    assert done.stdout == "False\n"
