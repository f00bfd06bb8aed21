"""DAGNN node by node, from the equations alone: dictionaries, recursion, no code of the library.

Parameters are looked up by their published paths, e.g. ``forward_layers.0.cell.weight_ih``.
"""

from collections.abc import Callable

import torch
from torch import Tensor

Weights = Callable[[str], Tensor]
Edges = list[tuple[int, int]]


def sigmoid(t: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-t))


def softmax(scores: list[Tensor]) -> list[Tensor]:
    total = sum(torch.exp(s) for s in scores)
    return [torch.exp(s) / total for s in scores]


def leaky_relu(t: Tensor) -> Tensor:
    return torch.where(t > 0, t, 0.2 * t)


def edge_vector(w: Weights, edge_type: int | None, edge_attr: Tensor | None) -> Tensor | None:
    """y of equation (8)."""
    parts = []
    if edge_type is not None:
        parts.append(w("aggregator.edge_embedding.weight")[edge_type])
    if edge_attr is not None:
        weight, bias = w("aggregator.edge_projection.weight"), w("aggregator.edge_projection.bias")
        parts.append(weight @ edge_attr + bias)
    return sum(parts) if parts else None  # type: ignore[return-value]


def one_hot(index: int, size: int, like: Tensor) -> Tensor:
    return torch.tensor([float(i == index) for i in range(size)], dtype=like.dtype)


def message(
    name: str,
    w: Weights,
    query: Tensor,
    states: list[Tensor],
    types: list[int | None],
    attrs: list[Tensor | None],
    num_types: int | None,
    hidden: int,
) -> Tensor:
    """The message to a node from the states of its predecessors, one entry per edge."""
    zero = query.new_zeros(hidden * num_types if name == "concat" else hidden)
    if not states:
        return zero
    edges = list(zip(types, attrs, strict=True))
    if name in ("attention", "dot_attention", "dynamic_attention"):
        w1, w2 = w("aggregator.query.weight"), w("aggregator.key.weight")
        scores = []
        for h, (edge_type, edge_attr) in zip(states, edges, strict=True):
            y = edge_vector(w, edge_type, edge_attr)
            y_term = 0 if y is None else w("aggregator.edge.weight") @ y
            if name == "attention":
                scores.append((w1 @ query + w2 @ h + y_term)[0])
            elif name == "dot_attention":
                scores.append((w1 @ query) @ (w2 @ h) + (0 if y is None else y_term[0]))
            else:
                inner = w1 @ query + w("aggregator.query.bias") + w2 @ h + y_term
                scores.append((w("aggregator.score_weight.weight") @ leaky_relu(inner))[0])
        return sum((a * h for a, h in zip(softmax(scores), states, strict=True)), zero)
    if name in ("gated_sum", "gated_edge_sum"):
        total = zero
        for h, (edge_type, edge_attr) in zip(states, edges, strict=True):
            z = [h] if name == "gated_sum" else []
            if edge_type is not None:
                z.append(one_hot(edge_type, num_types or 0, h))
            if edge_attr is not None:
                z.append(edge_attr)
            v = torch.cat(z)
            gate = sigmoid(w("aggregator.gate.weight") @ v + w("aggregator.gate.bias"))
            total = total + gate * (w("aggregator.map.weight") @ v)
        return total
    if name == "sum":
        return sum(states, zero)
    if name == "mean":
        return sum(states, zero) / len(states)
    if name == "max":
        return torch.stack(states).amax(0)
    if name == "mul":
        out = states[0]
        for h in states[1:]:
            out = out * h
        return out
    if name == "epsilon_sum":
        own = query if len(query) == hidden else w("aggregator.project.weight") @ query
        return (1 + w("aggregator.epsilon")) * own + sum(states, zero)
    assert name == "concat"
    places = [query.new_zeros(hidden) for _ in range(num_types or 0)]
    for h, place in zip(states, types, strict=True):
        assert place is not None
        places[place] = places[place] + h
    return torch.cat(places)


def update(
    name: str,
    w: Weights,
    x: Tensor,
    m: Tensor,
    states: list[Tensor],
    memories: list[Tensor],
    types: list[int | None],
    concat: bool,
) -> tuple[Tensor, Tensor]:
    """The state of a node, and its memory (of an LSTM)."""
    none = m.new_zeros(0)
    if name == "linear":
        w_x, w_m = w("cell.input.weight"), w("cell.message.weight")
        return w_x @ x + w("cell.input.bias") + w_m @ m, none
    if name == "lstm":
        inputs = (w("cell.input.weight") @ x + w("cell.input.bias")).chunk(4)
        from_message = (w("cell.message.weight") @ m).chunk(3)
        i, o, g = (a + b for a, b in zip(inputs, from_message, strict=False))
        c = sigmoid(i) * torch.tanh(g)
        hidden = len(c)
        for h_u, c_u, place in zip(states, memories, types, strict=True):
            if concat:
                assert place is not None
                rows = w("cell.forget.weight")[place * hidden : (place + 1) * hidden]
                f = rows @ m
            else:
                f = w("cell.forget.weight") @ h_u
            c = c + sigmoid(inputs[3] + f) * c_u
        return sigmoid(o) * torch.tanh(c), c
    from_x = w("cell.weight_ih") @ x + w("cell.bias_ih")
    from_m = w("cell.weight_hh") @ m + w("cell.bias_hh")
    if name == "tanh":
        return torch.tanh(from_x + from_m), none
    assert name == "gru"
    (r_x, z_x, n_x), (r_m, z_m, n_m) = from_x.chunk(3), from_m.chunk(3)
    r, z = sigmoid(r_x + r_m), sigmoid(z_x + z_m)
    n = torch.tanh(n_x + r * n_m)
    return (1 - z) * n + z * m, none


def layer(
    aggregator: str,
    cell: str,
    w: Weights,
    x: dict[int, Tensor],
    edges: Edges,
    types: list[int | None],
    attrs: list[Tensor | None],
    num_types: int | None,
    hidden: int,
) -> dict[int, Tensor]:
    """The states of all nodes in one layer, by recursion over predecessors."""
    done: dict[int, tuple[Tensor, Tensor]] = {}

    def state(v: int) -> tuple[Tensor, Tensor]:
        if v not in done:
            incoming = [e for e, (_, end) in enumerate(edges) if end == v]
            before = [state(edges[e][0]) for e in incoming]
            states, memories = [h for h, _ in before], [c for _, c in before]
            kinds = [types[e] for e in incoming]
            features = [attrs[e] for e in incoming]
            m = message(aggregator, w, x[v], states, kinds, features, num_types, hidden)
            done[v] = update(cell, w, x[v], m, states, memories, kinds, aggregator == "concat")
        return done[v]

    return {v: state(v)[0] for v in x}


def pool(name: str, rows: list[Tensor], w: Weights) -> Tensor:
    if name == "max":
        return torch.stack(rows).amax(0)
    total = sum(rows[1:], rows[0])
    if name == "sum":
        return total
    if name == "mean":
        return total / len(rows)
    if name == "gated_sum":
        gates = [torch.sigmoid(w("gate.weight") @ row + w("gate.bias")) for row in rows]
        values = [torch.tanh(w("map.weight") @ row + w("map.bias")) for row in rows]
        return sum((g * v for g, v in zip(gates, values, strict=True)), 0 * total)
    assert name == "attention"
    alpha = softmax([(w("score.weight") @ row)[0] for row in rows])
    return sum((a * row for a, row in zip(alpha, rows, strict=True)), 0 * total)


def dagnn(
    parameters: dict[str, Tensor],
    x: Tensor,
    edges: Edges,
    edge_type: list[int] | None = None,
    edge_attr: Tensor | None = None,
    *,
    aggregator: str,
    cell: str,
    num_layers: int,
    hidden: int,
    bidirectional: bool = False,
    readout: str = "max",
    readout_nodes: str = "targets",
    num_types: int | None = None,
) -> tuple[Tensor, list[list[Tensor]]]:
    """The vector of one graph, and per direction and layer (0 to L) the states ``[N, H]``."""
    nodes = range(len(x))
    types: list[int | None] = list(edge_type) if edge_type is not None else [None] * len(edges)
    attrs: list[Tensor | None] = list(edge_attr) if edge_attr is not None else [None] * len(edges)
    pooled, all_states = [], []
    for direction in ["forward", "reverse"][: 1 + bidirectional]:
        arcs = edges if direction == "forward" else [(v, u) for u, v in edges]
        states = [dict(enumerate(x))]
        for number in range(num_layers):

            def weight(name: str, d: str = direction, n: int = number) -> Tensor:
                return parameters[f"{d}_layers.{n}.{name}"]

            states.append(
                layer(aggregator, cell, weight, states[-1], arcs, types, attrs, num_types, hidden)
            )
        ends = set(nodes) if readout_nodes == "all" else set(nodes) - {u for u, _ in arcs}
        rows = [torch.cat([h[v] for h in states]) for v in sorted(ends)]

        def readout_weight(name: str, d: str = direction) -> Tensor:
            return parameters[f"{d}_readout.{name}"]

        pooled.append(pool(readout, rows, readout_weight))
        all_states.append([torch.stack([h[v] for v in nodes]) for h in states])
    out = torch.cat(pooled)
    if "lin.weight" in parameters:
        out = parameters["lin.weight"] @ out + parameters["lin.bias"]
    return out, all_states
