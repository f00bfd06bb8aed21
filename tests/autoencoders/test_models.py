"""All autoencoders, against likelihoods computed decision by decision."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from benchmarks import step_by_step
from dagnn.autoencoders import dense
from dagnn.autoencoders.models import MODELS, make_autoencoder
from dagnn.autoencoders.vae import DagVAE
from dagnn.datasets.small_dags import OUTPUT, SmallDags
from tests.autoencoders.graphs import cut, random_dags

CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    **{f"{model}-{task}": (model, task, {}) for model in MODELS for task in ("na", "bn")},
    "dagnn-1-layer": ("dagnn", "na", {"num_layers": 1}),
    "dagnn-4-layers": ("dagnn", "na", {"num_layers": 4}),
    "dagnn-gated": ("dagnn", "na", {"aggregator": "gated_sum"}),
    "dagnn-linear": ("dagnn", "na", {"cell": "linear"}),
    "dagnn-linear-gated": ("dagnn", "na", {"cell": "linear", "aggregator": "gated_sum"}),
    "dagnn-pool-all": ("dagnn", "na", {"pool": "all"}),
    "dagnn-pool-all-both": ("dagnn", "bn", {"pool": "all"}),
    "dagnn-both": ("dagnn", "na", {"bidirectional": True}),
    "d-vae-one": ("d-vae", "na", {"bidirectional": False}),
    "d-vae-both": ("d-vae", "bn", {"bidirectional": True}),
}


def make(case: str) -> DagVAE:
    model, task, options = CASES[case]
    torch.manual_seed(1)
    made = make_autoencoder(
        model, task, hidden_channels=9, latent_channels=4, num_types=5, max_nodes=6, **options
    )
    return made.double()


@pytest.fixture(params=CASES)
def model(request: pytest.FixtureRequest) -> DagVAE:
    return make(request.param)


@pytest.fixture(params=["shared", "static"])
def shapes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "has_static_shapes", lambda tensor: request.param == "static")


def gradients(model: DagVAE, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    names, parameters = zip(*model.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(loss, parameters), strict=True))


@pytest.mark.usefixtures("shapes")
def test_all_decisions_at_once_equal_one_by_one(model: DagVAE) -> None:
    graphs = random_dags(6)
    z = torch.randn(6, 4, dtype=torch.double)
    with torch.no_grad():
        expected = torch.cat(
            [step_by_step.log_likelihood(model, z[g : g + 1], cut(graphs, g)) for g in range(6)]
        )
    torch.testing.assert_close(model.log_likelihood(z, graphs), expected, rtol=0, atol=1e-6)
    # In double precision much more is possible.
    torch.testing.assert_close(model.log_likelihood(z, graphs), expected, rtol=1e-11, atol=1e-11)


@pytest.mark.usefixtures("shapes")
def test_gradients_equal_those_of_one_by_one(model: DagVAE) -> None:
    graphs = random_dags(5, fixed=True)
    noise = torch.randn(5, 4, dtype=torch.double)
    found = gradients(model, model.loss(graphs, noise).total)
    expected = gradients(model, step_by_step.loss(model, graphs, noise))
    for name, gradient in expected.items():
        assert gradient.abs().max() > 0, f"{name} gets no gradient"
        torch.testing.assert_close(found[name], gradient, rtol=1e-8, atol=1e-10, msg=name)


@pytest.mark.usefixtures("shapes")
def test_a_graph_does_not_depend_on_its_batch_mates(model: DagVAE) -> None:
    graphs = random_dags(4)
    z = torch.randn(4, 4, dtype=torch.double)
    alone = [graphs[g : g + 1] for g in range(4)]
    together = model.log_likelihood(z, graphs)
    by_one = torch.cat([model.log_likelihood(z[g : g + 1], one) for g, one in enumerate(alone)])
    torch.testing.assert_close(together, by_one)
    for found, parts in zip(
        model.encode(graphs), zip(*map(model.encode, alone), strict=True), strict=True
    ):
        torch.testing.assert_close(found, torch.cat(parts))


def test_loss_is_the_sum_of_its_parts(model: DagVAE) -> None:
    graphs = random_dags(6)
    mean, log_variance = model.encode(graphs)
    loss = model.loss(graphs)
    normal = torch.distributions.Normal(mean, (0.5 * log_variance).exp())
    standard = torch.distributions.Normal(torch.zeros_like(mean), 1.0)
    divergence = torch.distributions.kl_divergence(normal, standard).sum()
    torch.testing.assert_close(loss.divergence, divergence)
    torch.testing.assert_close(loss.reconstruction, -model.log_likelihood(mean, graphs).sum())
    torch.testing.assert_close(loss.total, loss.reconstruction + 0.005 * loss.divergence)


def test_decoded_graphs_are_acyclic_and_well_formed(model: DagVAE) -> None:
    graphs = model.decode(3 * torch.randn(64, 4, dtype=torch.double))
    graphs.check()
    # Every node but the output has a successor.
    last = torch.nn.functional.one_hot(graphs.num_nodes - 1, graphs.max_nodes).bool()
    assert (graphs.adjacency.any(1) == (graphs.is_node & ~last)).all()


def test_decoding_is_reproducible(model: DagVAE) -> None:
    z = torch.randn(16, 4, dtype=torch.double)
    runs = [
        model.decode(z, generator=torch.Generator().manual_seed(seed)).adjacency
        for seed in (0, 0, 1)
    ]
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])
    likeliest = [model.decode(z, stochastic=False).adjacency for _ in range(2)]
    assert torch.equal(*likeliest)


def all_graphs() -> SmallDags:
    """Every sequence of decisions about at most 3 nodes of 3 types; the last type is free."""
    rows = []
    for first, last, *bits in itertools.product(range(3), range(3), *[(False, True)] * 3):
        if first == OUTPUT:
            if last == 0 and not any(bits[1:]):
                rows.append(([0, first, 0], [bits[0], False, False], 2))
        else:
            rows.append(([0, first, last], bits, 3))
    types, bits, sizes = (torch.tensor(column) for column in zip(*rows, strict=True))
    adjacency = torch.zeros(len(rows), 3, 3, dtype=torch.bool)
    adjacency[:, 1, 0], adjacency[:, 2, :2] = bits[:, 0], bits[:, 1:]
    return SmallDags(types, adjacency, sizes, torch.zeros(len(rows), dtype=torch.double), 3)


@pytest.mark.parametrize("task", ["na", "bn"])
@pytest.mark.parametrize("name", MODELS)
def test_likelihoods_sum_to_one_and_draws_follow_them(name: str, task: str) -> None:
    model = make_autoencoder(
        name, task, hidden_channels=6, latent_channels=2, num_types=3, max_nodes=3
    )
    graphs = all_graphs()
    z = torch.randn(1, 2)
    p = model.log_likelihood(z.expand(len(graphs), -1), graphs).exp().detach()
    if name == "deepgmg":  # edges in another order than the newest first have the rest
        assert 0.5 < p.sum() < 1
    else:
        assert float(p.sum()) == pytest.approx(1, abs=1e-5)
    draws = model.decode(z.expand(20000, -1), generator=torch.Generator().manual_seed(0))
    for first, bit in itertools.product((0, 2), (False, True)):

        def matches(found: SmallDags, first: int = first, bit: bool = bit) -> torch.Tensor:
            return (found.types[:, 1] == first) & (found.adjacency[:, 1, 0] == bit)

        chance = float(p[matches(graphs)].sum())
        if name == "deepgmg":  # of the node's own decisions, without what follows
            continue
        assert float(matches(draws).double().mean()) == pytest.approx(chance, abs=0.012)
    ended = (graphs.types[:, 1] == OUTPUT) & (graphs.num_nodes == 2)
    assert float((draws.num_nodes == 2).double().mean()) == pytest.approx(
        float(p[ended].sum()), abs=0.012
    )


def test_directions_by_default() -> None:
    """D-VAE's own runs: both ways on NA, one on BN; DAGNN's paper: the other way round."""
    both = {
        case: any("reverse" in name for name, _ in make(case).named_parameters()) for case in CASES
    }
    assert both["d-vae-na"]
    assert not both["d-vae-bn"]
    assert both["dagnn-bn"]
    assert not both["dagnn-na"]


@pytest.mark.parametrize("name", ["dagnn", "d-vae", "gcn"])
def test_types_see_all_states_so_far_on_bn_alone(name: str) -> None:
    assert make(f"{name}-bn").decoder.types_see_sum  # type: ignore[attr-defined]
    assert not make(f"{name}-na").decoder.types_see_sum  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", MODELS)
def test_graphs_of_other_sizes_are_refused(name: str) -> None:
    model = make(f"{name}-na")
    message = "expected graphs of 5 types and room for 6 nodes, as .*, got {} and {}"
    with pytest.raises(ValueError, match=message.format(7, 6)):
        model.encode(random_dags(2, num_types=7))
    with pytest.raises(ValueError, match=message.format(5, 4)):
        model.loss(random_dags(2, max_nodes=4))


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match=r"expected model to be one of dagnn, .* got 'vae'"):
        make_autoencoder("vae")
    with pytest.raises(ValueError, match="expected task to be one of na, bn, got 'xx'"):
        make_autoencoder("dagnn", "xx")
    with pytest.raises(ValueError, match=r"of the model 's-vae' \(it has none\), got pool"):
        make_autoencoder("s-vae", pool="all")
    with pytest.raises(ValueError, match=r"'d-vae' \(bidirectional\), got pool, cell"):
        make_autoencoder("d-vae", pool="all", cell="gru", bidirectional=True)
    with pytest.raises(TypeError):  # not a matter of names
        make_autoencoder("dagnn", num_layers="two")
    with pytest.raises(ValueError, match="expected aggregator to be one of"):
        make_autoencoder("dagnn", aggregator="mean")
    with pytest.raises(ValueError, match="expected cell to be one of"):
        make_autoencoder("dagnn", cell="lstm")
    with pytest.raises(ValueError, match="expected pool 'targets' or 'all'"):
        make_autoencoder("dagnn", pool="none")
    with pytest.raises(ValueError, match="expected at least one layer"):
        make_autoencoder("dagnn", num_layers=0)
    with pytest.raises(ValueError, match=r"expected latent points of shape \[size, 4\], got \[3\]"):
        make("dagnn-na").decode(torch.zeros(3))


def test_linear_cells_are_of_the_encoder_alone() -> None:
    model = make_autoencoder("dagnn", "na", hidden_channels=8, latent_channels=3, cell="linear")

    def cells(part: object) -> set[str]:
        assert isinstance(part, torch.nn.Module)
        return {type(module).__name__ for module in part.modules()} & {"GRUCell", "LinearCell"}

    assert cells(model.encoder) == {"LinearCell"}
    assert cells(model.decoder) == {"GRUCell"}
