from __future__ import annotations

import numpy as np
import pytest

from dagnn.bayesnet.constraints import Constraints
from dagnn.graph.levels import CycleError
from tests.bayesnet.cases import all_dags


def test_edges_by_name() -> None:
    made = Constraints.over(["A", "B", "C"], require=["A:B"], forbid=[("C", "A")], max_parents=7)
    assert np.argwhere(made.required).tolist() == [[1, 0]]
    assert np.argwhere(made.forbidden).tolist() == [[0, 2]]
    assert made.max_parents == 2


def test_allow() -> None:
    made = Constraints.over(["A", "B", "C"], require=["A:B"], forbid=["A:C"], max_parents=1)
    graphs = all_dags(3)
    expected = graphs[:, 1, 0] & ~graphs[:, 2, 0] & (graphs.sum(axis=2) <= 1).all(axis=1)
    assert (made.allow(graphs) == expected).all()
    assert expected.any()


def test_names_with_colons() -> None:
    made = Constraints.over(["a:b", "c d", "ü"], require=["a:b:c d", "c d:ü"])
    assert np.argwhere(made.required).tolist() == [[1, 0], [2, 1]]
    with pytest.raises(ValueError, match="one way to read 'a:b:c'"):
        Constraints.over(["a", "b:c", "a:b", "c"], require=["a:b:c"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"require": ["A:Z"]}, "got Z; there are A, B, C"),
        ({"forbid": ["AB"]}, "expected an edge such as A:B"),
        ({"require": ["A:B"], "forbid": ["A:B"]}, "got both for A:B"),
        ({"require": ["A:C", "B:C"], "max_parents": 1}, "at most 1 parents, got 2 required for C"),
        ({"max_parents": -1}, "max_parents of at least 0"),
    ],
)
def test_contradictions(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Constraints.over(["A", "B", "C"], **arguments)  # type: ignore[arg-type]


def test_required_cycles_are_named() -> None:
    with pytest.raises(CycleError, match=r"required edges: .*cycle of 3 nodes") as caught:
        Constraints.over(["A", "B", "C"], require=["A:B", "B:C", "C:A"])
    assert sorted(caught.value.cycle) == ["A", "B", "C"]
    with pytest.raises(CycleError, match="self-loop: A -> A"):
        Constraints.over(["A"], require=["A:A"])


def test_a_text_is_not_a_list_of_edges() -> None:
    with pytest.raises(TypeError, match="put it in a list"):
        Constraints.over(["A", "B"], require="A:B")
