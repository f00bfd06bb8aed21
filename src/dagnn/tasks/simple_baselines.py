"""What needs no training: three simple baselines, and the best score that can be had at all."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dagnn.datasets.code_vocabulary import CodeVocabulary, sub_tokens
from dagnn.datasets.functions import MASK
from dagnn.graph.flat import FlatGraphs
from dagnn.tasks.metrics import graph_of_rows, token_f1

__all__ = [
    "best_achievable_f1",
    "majority_in_valid",
    "node_to_token",
    "simple_baselines",
    "target_in_graph",
]


def simple_baselines(
    task: str, valid: FlatGraphs, test: FlatGraphs, vocabulary: CodeVocabulary
) -> dict[str, float]:
    """All baselines of a task, on the test split."""
    if task == "lp":
        return {"MajorityInValid": majority_in_valid(valid, test)}
    return {
        "Node2Token": node_to_token(test, vocabulary),
        "TargetInGraph": target_in_graph(test, vocabulary),
        "best achievable": best_achievable_f1(test, vocabulary),
    }


def best_achievable_f1(graphs: FlatGraphs, vocabulary: CodeVocabulary) -> float:
    """F1 of an oracle that answers with the true tokens, as far as they are in the vocabulary and
    among the first five."""
    unknown = len(vocabulary.tokens) - 2
    tokens = graphs.column("tokens").cpu()
    # An unknown token is left out, and those behind it move up.
    order = torch.argsort((tokens >= unknown).to(torch.int8), dim=1, stable=True)
    return _f1(tokens.gather(1, order).clamp(max=unknown), graphs, eos=unknown)


def node_to_token(graphs: FlatGraphs, vocabulary: CodeVocabulary) -> float:
    """F1 of the words of the second node's attribute: the function's own name, where it is not
    masked."""
    pointer, words = _words_of_attributes(vocabulary)
    eos = len(vocabulary.tokens) - 1
    attribute = graphs.column("second_attribute").cpu().numpy()
    length = np.diff(pointer)
    predicted = np.full((len(graphs), max(1, int(length.max(initial=0)))), eos)
    for place in range(predicted.shape[1]):
        there = length[attribute] > place
        predicted[there, place] = words[pointer[attribute[there]] + place]
    return _f1(torch.from_numpy(predicted), graphs, eos)


def target_in_graph(graphs: FlatGraphs, vocabulary: CodeVocabulary) -> float:
    """F1 of the true tokens that occur as words of the graph's attributes: an oracle that can only
    copy."""
    pointer, words = _words_of_attributes(vocabulary)
    attribute = graphs.column("attribute").cpu().numpy()
    node_graph = graph_of_rows(graphs.node_ptr).numpy()
    length = np.diff(pointer)[attribute]
    rows = np.repeat(pointer[attribute] - np.append(0, length.cumsum()[:-1]), length)
    present = words[rows + np.arange(len(rows))]  # of all attributes of all nodes
    num_tokens = len(vocabulary.tokens)
    pairs = np.unique(np.repeat(node_graph, length) * num_tokens + present)

    true, true_graph = _true_tokens(graphs)
    copied = np.isin(true_graph.numpy() * num_tokens + true.numpy(), pairs) & (true.numpy() >= 0)
    hits = np.bincount(true_graph.numpy()[copied], minlength=len(graphs))
    total = np.bincount(true_graph.numpy(), minlength=len(graphs))
    return float(np.mean(2 * hits / np.maximum(hits + total, 1)))  # a name may have no words


def majority_in_valid(valid: FlatGraphs, test: FlatGraphs) -> float:
    """Accuracy of the most frequent length of the validation split; of several, the shortest."""
    counts = torch.bincount(valid.column("longest_path").cpu())
    return float((test.column("longest_path").cpu() == counts.argmax()).float().mean())


def _words_of_attributes(vocabulary: CodeVocabulary) -> tuple[np.ndarray, np.ndarray]:
    """Of each attribute the words that are tokens, as pointers and tokens; a masked name, and the
    last two, an unknown attribute and none, have no words."""
    known = [
        [] if word == MASK else vocabulary.token_ids(sub_tokens(word))
        for word in vocabulary.attributes[:-2]
    ]
    tokens = [[i for i in ids if i >= 0] for ids in known] + [[], []]
    pointer = np.cumsum([0, *map(len, tokens)])
    return pointer, np.array([i for ids in tokens for i in ids], dtype=np.int64)


def _true_tokens(graphs: FlatGraphs) -> tuple[Tensor, Tensor]:
    return graphs.column("name_tokens").cpu(), graph_of_rows(graphs.pointer("name_tokens"))


def _f1(predicted: Tensor, graphs: FlatGraphs, eos: int) -> float:
    return float(token_f1(predicted, *_true_tokens(graphs), eos)[2].double().mean())
