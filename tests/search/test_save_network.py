from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dagnn.bayesnet.network import BayesianNetwork
from dagnn.bayesnet.scores import FamilyScores
from dagnn.bayesnet.table import Table
from dagnn.search import save_network as module
from dagnn.search.learning_report import LearnedNetwork
from dagnn.search.save_network import save_network
from tests.search.pages import example


def test_files_appear_together_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "format_page", interrupted)
        with pytest.raises(KeyboardInterrupt):
            save_network(example(), tmp_path / "out", "title")
    assert not list(tmp_path.iterdir())
    files, left_out = save_network(example(), tmp_path / "out", "title")
    assert not left_out
    assert len(files) == 7
    assert all(path.stat().st_size for path in files)


def test_tables_too_large_for_bif_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagnn.bayesnet.bif.MAX_ENTRIES", 3)
    files, left_out = save_network(example(), tmp_path / "out", "title")
    assert len(files) == 6
    assert "no network.bif" in left_out[0]


def test_a_network_without_a_report_is_refused(tmp_path: Path) -> None:
    scores = FamilyScores(Table.from_frame(pd.DataFrame({"a": ["x", "y"]})))
    network = LearnedNetwork.fit(scores, np.zeros((1, 1), dtype=bool))
    assert isinstance(network, BayesianNetwork)
    assert isinstance(network, LearnedNetwork)
    with pytest.raises(ValueError, match="with a report"):
        save_network(network, tmp_path / "out", "title")
