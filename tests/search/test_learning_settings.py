from __future__ import annotations

from dagnn.search.learning_settings import LearningSettings


def test_sizes_shrink_with_the_variables() -> None:
    few, many = (LearningSettings().sized(n, on_gpu=False) for n in (8, 60))
    assert few.num_pivots is not None
    assert many.num_pivots is not None
    assert few.num_pivots > many.num_pivots
    assert LearningSettings(epochs=3).sized(8, on_gpu=True).epochs == 3


def test_the_paper_is_sized_like_the_rest() -> None:
    paper = LearningSettings.paper().sized(8, on_gpu=True)
    assert (paper.hidden_channels, paper.latent_channels, paper.batch_size) == (501, 56, 128)
    assert paper.pivots == "fixed"
