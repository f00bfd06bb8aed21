"""The benchmark at tiny sizes: it runs, checks before it times, and writes what it found."""

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import checks
from benchmarks.checks import Check, Oracle
from benchmarks.floor import Floor
from benchmarks.models import MPNNTask, make_dagnn, wavefront
from benchmarks.report import write_json
from benchmarks.run import is_whole, main
from benchmarks.timing import Runner, is_cut_short, peak_bytes
from benchmarks.workloads import make_workload

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def run(*arguments: str) -> dict[str, Any]:
    return main(["--quick", "--device", "cpu", "--repeats", "2", *arguments])


def test_chains_and_growth(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "results" / "engine_cpu.json"
    run("--only", "chains", "scaling", "path", "--json", str(file))

    assert list(file.parent.iterdir()) == [file]  # no temporary file is left
    result = json.loads(file.read_text())
    assert result["failed"] == {}
    assert result["not_measured"] == []
    assert result["command"].endswith(f"--json {file}")
    assert result["config"]["backends"] == ["reference", "cpu"]
    assert result["seed"] == 0
    assert result["versions"]["torch"]
    assert result["hardware"]["device"]
    assert result["hardware"]["threads"] == 1

    chains = result["workloads"]["chains"]
    assert (chains["graphs"], chains["nodes"], chains["levels"]) == (4, 24, 6)
    assert len(chains["fingerprint"]) == 64
    assert chains["refused"] == []
    assert [(c["backend"], c["passed"]) for c in chains["checks"]] == [
        ("reference", True),
        ("cpu", True),
    ]
    for check in chains["checks"]:
        assert max(check["output_error"], check["gradient_error"]) < check["bar"] == 1e-5
        assert "x" in check["gradient_errors"]
    models = {"dagnn/reference", "dagnn/cpu", "gcn", "gin", "gru", "gru_pair", "floor"}
    assert {(t["model"], t["phase"]) for t in chains["timings"]} == {
        (model, phase) for model in models for phase in ("train", "infer")
    }
    for timing in chains["timings"]:
        assert 0 < timing["quartile_1_ms"] <= timing["median_ms"] <= timing["quartile_3_ms"]
    for ratio in chains["ratios"]:
        assert all(
            ratio[f"train_over_{other}"] > 0 for other in ("gcn", "gin", "floor", "gru")
        )  # fmt: skip
        assert ratio["memory_over_reference"] > 0
        assert ratio["build_over_train"] > 0
    assert chains["build"].keys() == {"flat", "collate", "schedule"}

    (series,) = result["scaling"]["series"]
    assert series["stopped"] is None
    assert [point["nodes"] for point in series["points"]] == [512, 1024, 2048]
    assert result["path"]["levels"] == 300
    assert result["path"]["passed"]

    printed = capsys.readouterr().out
    assert "dagnn/reference" in printed
    assert "GCN-5" in printed
    assert "path of 300 nodes" in printed


def test_a_backend_that_fails_its_check_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(checks.BARS, "fp32", 1e-12)
    chains = run("--only", "chains")["workloads"]["chains"]
    timed = {timing["model"] for timing in chains["timings"]}
    assert "dagnn/cpu" not in timed
    assert "dagnn/reference" in timed  # the yardstick
    (refusal,) = chains["refused"]
    assert refusal["model"] == "dagnn/cpu"
    assert "expected below 1e-12" in refusal["reason"]


def test_a_backend_that_cannot_run_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    check = Oracle.check

    def refuse(self: Oracle, backend: str, precision: str) -> Check:
        if backend == "triton":
            raise ValueError("no device")
        return check(self, backend, precision)

    monkeypatch.setattr(Oracle, "check", refuse)
    result = run("--only", "chains", "--backends", "reference", "triton")
    (refusal,) = result["workloads"]["chains"]["refused"]
    assert refusal["model"] == "dagnn/triton"
    assert refusal["reason"] == "ValueError: no device"
    assert is_whole(result)
    assert not is_whole(run("--only", "chains", "--backends", "triton"))
    assert not is_whole({**result, "failed": {"chains": "an error"}})


def test_nothing_is_begun_when_the_time_is_used_up() -> None:
    result = run("--only", "chains", "na", "--budget", "0")
    assert result["workloads"] == {}
    assert result["not_measured"] == ["chains", "na"]


def test_too_few_rounds_are_told() -> None:
    assert is_cut_short([{"repeats": 20}, {"repeats": 2}], repeats=20)
    assert not is_cut_short([{"repeats": 20}, {"repeats": 3}], repeats=20)
    assert not is_cut_short([{"repeats": 1}], repeats=1)  # as asked


@pytest.mark.parametrize("name", ["gated", "wide", "bn", "na"])
def test_backends_agree_on_other_workloads(name: str) -> None:
    oracle = Oracle(make_workload(name, CPU, 0, quick=True), 0)
    assert oracle.check("reference", "fp32").passed
    assert oracle.check("cpu", "fp32").passed


def test_nan_never_passes() -> None:
    assert not Check("cpu", "fp32", math.nan, 0.0, "x", {}).passed
    assert not Check("cpu", "fp32", 0.0, math.nan, "x", {}).passed


def test_a_gcn_that_is_given_its_loops_is_the_same() -> None:
    workload = make_workload("bn", CPU, 0, quick=True)
    looks, given = (MPNNTask(workload, "gcn", given_loops=given) for given in (False, True))
    given.load_state_dict(looks.state_dict())
    torch.testing.assert_close(given.loss(), looks.loss())
    where = torch.device("meta")  # of tensors without values: nothing is there to look for
    given.model.to(where)(given.x.to(where), given.edge_index.to(where))
    with pytest.raises(NotImplementedError, match="nonzero"):
        looks.model.to(where)(looks.x.to(where), looks.edge_index.to(where))


def test_floor_counts_the_products_of_a_step() -> None:
    workload = make_workload("chains", CPU, 0, quick=True)
    nodes, later, hidden, inputs = 24, 20, 16, 12  # 4 chains: 4 nodes have no predecessor
    layers = nodes * (inputs + hidden) + 2 * later * hidden
    floor = Floor(workload, "fp32")
    assert floor.flops["infer"] == 2 * 2 * 3 * hidden * layers  # multiply, add; two directions
    assert floor.flops["train"] == 3 * floor.flops["infer"]


def test_floor_counts_gates_and_maps_of_a_gated_sum() -> None:
    workload = make_workload("gated", CPU, 0, quick=True)
    a, schedule = workload.architecture, workload.schedule
    rows = 0  # in units of hidden columns
    for direction in range(2):
        preds = (schedule.pred_ptr[direction].diff() > 0).sum().item()
        succs = schedule.pred[direction].unique().numel()  # someone's predecessor
        rows += 3 * schedule.num_nodes * a.in_channels + (3 * preds + 2 * succs) * a.hidden
    readout = workload.num_graphs * (2 * a.hidden * a.out_channels)
    heads = workload.num_graphs * a.out_channels * a.heads * a.classes
    assert Floor(workload, "fp32").flops["infer"] == 2 * (a.hidden * rows + readout + heads)


def test_peak_memory_is_the_largest_sum_of_what_is_held() -> None:
    a = torch.ones(1000)

    def step() -> None:
        b = a + 1  # 4,000 bytes
        c = b + 1  # 8,000 held
        del b
        c.add_(1)

    assert 8000 <= peak_bytes(Runner(step), CPU) < 9000


def test_json_has_words_for_nan(tmp_path: Path) -> None:
    write_json({"error": math.nan}, tmp_path / "result.json")
    assert json.loads((tmp_path / "result.json").read_text()) == {"error": "nan"}


def test_variants_of_a_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same backend, told whether layers run two at a time."""
    name = "DAGNN_WAVEFRONT"
    workload = make_workload("chains", CPU, 0, quick=True)
    assert make_dagnn(workload, "triton-wave").backend == "triton"
    monkeypatch.setenv(name, "before")
    with wavefront("triton"):
        assert os.environ[name] == "before"
    with wavefront("triton-layers"):
        assert os.environ[name] == "never"
    assert os.environ[name] == "before"
    monkeypatch.delenv(name)
    with wavefront("triton-wave"):
        assert os.environ[name] == "always"
    assert name not in os.environ
