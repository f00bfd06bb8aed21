"""Names and vectors of functions that a small trained model has not seen."""

from __future__ import annotations

import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from dagnn import predict_names
from dagnn.datasets.functions import functions_of
from dagnn.tasks import naming
from dagnn.tasks.code_training import load_task, train_code
from tests.tasks.small_code import dataset
from tests.tasks.test_code_training import QUIET, small_run

SOURCE = """
class Table:
    def get_row(self, row):
        if row:
            return row
        pass

    async def fetch(self):
        def inner(key):
            return len(key)
        return map(lambda x: x, inner(self))
"""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tok")
    train_code(small_run(epochs=30), dataset(), folder, **QUIET)
    return folder / "best.ckpt"


def test_names_of_unseen_functions(checkpoint: Path) -> None:
    source = "def x(user):\n    if user:\n        return len(user)\n    pass"
    (named,) = predict_names(source, checkpoint, count=4)
    assert len(named.suggestions) == 4
    probabilities = [s.probability for s in named.suggestions]
    assert probabilities == sorted(probabilities, reverse=True)
    assert 0 < sum(probabilities) <= 1
    assert named.suggestions[0].name == "count_user"


def test_every_kind_of_function(checkpoint: Path) -> None:
    named = predict_names(SOURCE, checkpoint)
    assert [(f.qualified_name, f.line) for f in named] == [
        ("Table.get_row", 3),
        ("Table.fetch", 8),
        ("Table.fetch.<locals>.inner", 9),
    ]
    assert predict_names("x = 1", checkpoint) == []


def test_surprise_is_larger_for_a_wrong_name(checkpoint: Path) -> None:
    body = "(user):\n    if user:\n        return len(user)\n    pass"
    right, wrong = (
        predict_names(f"def {name}{body}", checkpoint)[0].surprise
        for name in ("count_user", "del_file")
    )
    assert right < wrong


def test_order_and_batches_do_not_matter(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = load_task(checkpoint)
    functions = functions_of(SOURCE) * 3
    at_once = naming.embed(task, functions, device="cpu")
    named = naming.name(task, functions, device="cpu")
    monkeypatch.setattr(naming, "BATCH", 2)
    monkeypatch.setattr(naming, "CHUNK", 4)
    assert torch.allclose(naming.embed(task, functions, device="cpu"), at_once, atol=1e-5)
    assert at_once.shape == (9, 16)
    again = naming.name(task, functions, device="cpu")
    assert [f.suggestions[0].name for f in again] == [f.suggestions[0].name for f in named]


def test_overlapping_calls_leave_the_number_of_threads(checkpoint: Path) -> None:
    """It is of the process, too: a thread that begins meanwhile sees that of the one inside."""
    task, functions = load_task(checkpoint), functions_of(SOURCE)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        first = naming._results(task, functions, "cpu", task.encoder)
        next(first)  # inside
        with ThreadPoolExecutor(1) as pool:
            pool.submit(naming.embed, task, functions, device="cpu").result()
            numbers = naming._results(
                task, functions, "cpu", lambda _: torch.tensor([torch.get_num_threads()])
            )
            assert [int(found) for _, found in numbers] == [1]  # though another one has left
            first.close()
            assert pool.submit(torch.get_num_threads).result() == 2
        assert torch.get_num_threads() == 2
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(torch.get_num_threads).result() == 2
    finally:
        torch.set_num_threads(before)


def test_syntax_error_has_line_and_column(checkpoint: Path) -> None:
    with pytest.raises(SyntaxError) as caught:
        predict_names("def f(:\n    pass", checkpoint)
    assert (caught.value.lineno, caught.value.offset) == (1, 7)


def test_missing_model_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="train one with `dagnn train tok`"):
        predict_names("def f(): pass")
    monkeypatch.setenv("DAGNN_CHECKPOINT", "nowhere.ckpt")
    with pytest.raises(ValueError, match=r"nowhere\.ckpt"):
        predict_names("def f(): pass")


def test_a_model_of_another_task_is_refused(tmp_path: Path) -> None:
    run = small_run("lp", epochs=1)
    train_code(run, dataset(run.edges), tmp_path, **QUIET)
    with pytest.raises(ValueError, match="trained on tok, got one trained on lp"):
        predict_names("def f(): pass", tmp_path / "best.ckpt")


def test_a_file_is_given_as_a_path(checkpoint: Path, tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_bytes(b"# coding: latin-1\ndef f(user):\n    return len(user), '\xe9'\n")
    (named,) = predict_names(path, checkpoint)
    assert (named.name, named.line) == ("f", 2)
    with pytest.raises(ValueError, match=r"the name of a file; give Path\('src/module\.py'\)"):
        predict_names("src/module.py", checkpoint)
    path.write_bytes(b"x = 1\n\n\xe9\n")
    with pytest.raises(SyntaxError) as caught:
        predict_names(path, checkpoint)
    assert (caught.value.filename, caught.value.lineno) == (str(path), 3)
    with pytest.raises(FileNotFoundError):
        predict_names(tmp_path / "nothing.py", checkpoint)


def test_a_run_is_named_by_its_folder(checkpoint: Path) -> None:
    assert predict_names(SOURCE, checkpoint.parent) == predict_names(SOURCE, checkpoint)


def test_a_model_is_read_once_for_many_calls(checkpoint: Path) -> None:
    task = load_task(checkpoint)
    assert predict_names(SOURCE, task, device="cpu") == predict_names(SOURCE, checkpoint)


def test_text_as_it_was_copied(checkpoint: Path) -> None:
    source = "def x(user):\n    if user:\n        return len(user)\n    pass\n"
    (expected,) = predict_names(source, checkpoint)
    assert predict_names("\ufeff" + source, checkpoint) == [expected]
    (indented,) = predict_names("\n" + textwrap.indent(source, "    "), checkpoint)
    assert indented.suggestions == expected.suggestions
    assert indented.line == expected.line + 1


@pytest.mark.parametrize("count", [2.5, True, "3"])
def test_a_number_of_names(count: Any, checkpoint: Path) -> None:
    with pytest.raises(TypeError, match="expected a whole number of names, got"):
        predict_names(SOURCE, checkpoint, count=count)


@pytest.mark.parametrize("source", [b"def f(): pass", None])
def test_source_must_be_text(source: Any) -> None:
    with pytest.raises(TypeError, match="expected Python source code as a str, or a file"):
        naming.predict_names(source)
