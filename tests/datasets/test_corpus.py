from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from dagnn.datasets.code_dataset import load_code_dataset
from dagnn.datasets.corpus import CorpusReport, build_corpus
from dagnn.datasets.corpus_parts import cut_parts, part_key, write_part
from dagnn.datasets.corpus_splits import divide, split_of
from dagnn.datasets.functions import NODE_TYPES, functions_of
from dagnn.datasets.sources import SourceFile, find_sources


def function(name: str, word: str) -> str:
    return f"def {name}(self, {word}):\n    return self.{word} + {word}.value\n\n\n"


def write_projects(root: Path, count: int = 12) -> None:
    for i in range(count):
        folder = root / f"project{i}"
        folder.mkdir(parents=True)
        text = function(f"read_{i}", f"word{i}") + function("shared", "common")
        (folder / "code.py").write_text(text, encoding="utf-8")


def build(root: Path, out: Path, **options: Any) -> CorpusReport:
    return build_corpus([str(root)], out, **({"workers": 1} | options))


def rows(out: Path) -> list[dict[str, Any]]:
    return pyarrow.parquet.read_table(out / "functions.parquet").to_pylist()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, CorpusReport]:
    folder = tmp_path_factory.mktemp("corpus")
    write_projects(folder / "code")
    return folder / "code", folder / "out", build(folder / "code", folder / "out")


def test_schema_and_rows(built: tuple[Path, Path, CorpusReport]) -> None:
    root, out, report = built
    schema = pyarrow.parquet.read_schema(out / "functions.parquet")
    assert [(f.name, str(f.type)) for f in schema][:6] == [
        ("project", "dictionary<values=string, indices=int32, ordered=0>"),
        ("split", "dictionary<values=string, indices=int32, ordered=0>"),
        ("name", "string"),
        ("node_type", "list<element: uint8>"),
        ("parent_offset", "list<element: int16>"),
        ("attribute", "list<element: string>"),
    ]
    assert json.loads(schema.metadata[b"node_types"]) == list(NODE_TYPES)
    found = rows(out)
    assert len(found) == 13 == sum(report.functions.values())
    expected = functions_of((root / "project3" / "code.py").read_text())[0]
    [row] = [row for row in found if row["name"] == "read_3"]
    assert row["node_type"] == list(expected.node_type)
    assert row["parent_offset"] == list(expected.parent_offset)
    assert row["attribute"] == expected.attribute
    assert (row["path"], row["line"]) == ("code/project3/code.py", 1)


def test_split_is_that_of_the_project(built: tuple[Path, Path, CorpusReport]) -> None:
    _, out, report = built
    for row in rows(out):
        assert row["split"] == split_of(row["project"], seed=0)
    assert report.projects == 12
    assert report.functions["train"] > 0


def test_identical_dags_are_kept_once(built: tuple[Path, Path, CorpusReport]) -> None:
    _, out, report = built
    shared = [row for row in rows(out) if row["name"] == "shared"]
    assert [row["project"] for row in shared] == ["code/project0"]
    assert report.duplicates == 11


def test_corpus_is_a_data_set(built: tuple[Path, Path, CorpusReport]) -> None:
    _, out, report = built
    data = load_code_dataset(out)
    assert len(data.train) == report.functions["train"]
    trained = {row["name"] for row in rows(out) if row["split"] == "train"}
    numbers = {name.removeprefix("read_") for name in trained} - {"shared"}
    assert numbers <= set(data.vocabulary.tokens)
    unseen = {row["name"].removeprefix("read_") for row in rows(out)} - numbers - {"shared"}
    assert not unseen & set(data.vocabulary.tokens)


def test_result_does_not_depend_on_workers_or_history(
    built: tuple[Path, Path, CorpusReport], tmp_path: Path
) -> None:
    root, out, _ = built
    again = tmp_path / "again"
    build(root, again, workers=2)
    files = [folder / "functions.parquet" for folder in (out, again)]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_second_run_reuses_what_is_unchanged(tmp_path: Path) -> None:
    root, out = tmp_path / "code", tmp_path / "out"
    write_projects(root, 3)
    assert build(root, out).reused_files == 0
    before = (out / "functions.parquet").stat()
    assert build(root, out).reused_files == 3
    after = (out / "functions.parquet").stat()
    assert (before.st_mtime_ns, before.st_ino) == (after.st_mtime_ns, after.st_ino)

    (root / "project1" / "code.py").write_text(function("changed", "other"))
    report = build(root, out)
    assert report.reused_files == 2
    assert {row["name"] for row in rows(out)} == {"read_0", "changed", "shared", "read_2"}
    assert len(list((out / "parts").iterdir())) == 3

    assert build(root, out, seed=1).reused_files == 3
    found = {row["project"]: row["split"] for row in rows(out)}
    assert found == divide({f"code/project{i}" for i in range(3)}, seed=1)


@pytest.mark.parametrize("seed", [0, 1])
def test_three_projects_fill_all_splits(seed: int, tmp_path: Path) -> None:
    write_projects(tmp_path / "code", 3)
    (tmp_path / "code" / "empty.py").write_text("x = 1\n")
    report = build(tmp_path / "code", tmp_path / "out", seed=seed)
    assert report.split_by == "project"
    assert report.projects == 4
    assert sorted(report.functions.values()) == [1, 1, 2]
    assert all(count == 1 for count in Counter(split_by(tmp_path / "out", "project")).values())
    before = (tmp_path / "out" / "functions.parquet").read_bytes()
    build(tmp_path / "code", tmp_path / "again", seed=seed, workers=2)
    assert (tmp_path / "again" / "functions.parquet").read_bytes() == before


def split_by(out: Path, column: str) -> list[str]:
    """The units of a corpus, once for each split they are in."""
    return [unit for unit, _ in {(row[column], row["split"]) for row in rows(out)}]


def test_a_project_alone_is_split_by_file(tmp_path: Path) -> None:
    root = tmp_path / "mine"
    write_projects(root, 5)
    (root / "pyproject.toml").touch()
    report = build(root, tmp_path / "out")
    assert (report.projects, report.split_by) == (1, "file")
    assert min(report.functions.values()) > 0
    assert sum(report.functions.values()) == 6
    assert max(Counter(split_by(tmp_path / "out", "path")).values()) == 1
    assert len(load_code_dataset(tmp_path / "out").valid) == report.functions["valid"]
    assert build(root, tmp_path / "out") == replace(report, reused_files=5)


@pytest.mark.parametrize("group", ["project", "folder", "file"])
def test_a_file_alone_is_split_by_function(group: str, tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("".join(function(f"name{i}", f"word{i}") for i in range(3)))
    report = build(path, tmp_path / "out", group=group)
    assert report.split_by == "function"
    assert report.functions == {"train": 1, "valid": 1, "test": 1}


def test_folders_with_the_same_name_are_split_by_function(tmp_path: Path) -> None:
    for folder, names in (("one", "ab"), ("two", "c")):
        (tmp_path / folder / "same").mkdir(parents=True)
        text = "".join(function(name, f"word_{name}") for name in names)
        (tmp_path / folder / "same" / "code.py").write_text(text)
    folders = [str(tmp_path / folder / "same") for folder in ("one", "two")]
    report = build_corpus(folders, tmp_path / "out", workers=1)
    assert report.split_by == "function"
    assert report.functions == {"train": 1, "valid": 1, "test": 1}


def test_parts_that_other_machines_have_kept_to_themselves(tmp_path: Path) -> None:
    write_projects(tmp_path / "code", 3)

    def elsewhere(function: Any, tasks: Any) -> Any:
        return ((task, True) for task in tasks)

    with pytest.raises(OSError, match="all machines must see the same files"):
        build(tmp_path / "code", tmp_path / "out", workers=None, run=elsewhere)


def test_two_functions_cannot_fill_three_splits(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(function("a", "b") + function("c", "d"))
    report = build(tmp_path / "a.py", tmp_path / "out")
    assert report.split_by == "project"
    assert sum(report.functions.values()) == 2


def test_damaged_corpus_is_made_again(tmp_path: Path) -> None:
    root, out = tmp_path / "code", tmp_path / "out"
    write_projects(root, 2)
    build(root, out)
    whole = (out / "functions.parquet").read_bytes()
    (out / "functions.parquet").write_bytes(whole[:50])
    build(root, out)
    assert (out / "functions.parquet").read_bytes() == whole
    (out / "report.json").write_text("{")
    build(root, out)
    assert json.loads((out / "report.json").read_text())["files"] == 2


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "gone"])
def test_damaged_part_is_parsed_again(damage: str, tmp_path: Path) -> None:
    root, out = tmp_path / "code", tmp_path / "out"
    write_projects(root, 2)
    build(root, out)
    whole = (out / "functions.parquet").read_bytes()
    (out / "functions.parquet").unlink()
    part = min((out / "parts").iterdir())
    content = part.read_bytes()
    place = content.index(b"code/project")  # in a page of data
    changed = {
        "cut": content[: len(content) // 2],
        "flipped": content[:place] + b"\xff" + content[place + 1 :],
        "empty": b"",
    }
    if damage == "gone":
        part.unlink()
    else:
        part.write_bytes(changed[damage])
    assert build(root, out).reused_files == 1
    assert json.loads((out / "report.json").read_text())["reused_files"] == 1
    assert (out / "functions.parquet").read_bytes() == whole
    assert part.read_bytes() == content


def test_only_parts_are_removed(tmp_path: Path) -> None:
    root, out = tmp_path / "code", tmp_path / "out"
    write_projects(root, 1)
    old = out / "parts" / f"{'0' * 64}.parquet"
    unfinished = f".{'1' * 64}.parquet.{'2' * 32}"
    foreign = {"notes.txt", "data.parquet", unfinished, f"{'3' * 64}.parquet"}
    (out / "parts").mkdir(parents=True)
    for name in foreign | {old.name}:
        (out / "parts" / name).touch()
    folder = out / "parts" / f"{'3' * 64}.parquet"
    folder.unlink()
    (folder / "inside").mkdir(parents=True)
    build(root, out)
    assert not old.exists()
    assert {path.name for path in (out / "parts").iterdir()} > foreign


def test_interrupted_run_leaves_nothing_half_written(
    built: tuple[Path, Path, CorpusReport], tmp_path: Path
) -> None:
    root, complete, _ = built
    out = tmp_path / "out"

    def interrupt(done: int, total: int) -> None:
        if done >= 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(root, out, progress=interrupt)
    assert os.listdir(out) == ["parts"]
    for part in (out / "parts").iterdir():
        assert pyarrow.parquet.read_table(part).num_rows == 2
    assert build(root, out).reused_files >= 4
    assert (out / "functions.parquet").read_bytes() == (complete / "functions.parquet").read_bytes()


def write_hostile(root: Path) -> dict[str, str]:
    """Files with one problem each, and what it is called."""
    body = function("fine", "word").encode()
    problems = {
        "latin.py": (b"s = '\xe9'\n" + body, "undecodable"),
        "cookie.py": (b"# coding: klingon\n" + body, "undecodable"),
        "two_cookies.py": (b"\xef\xbb\xbf# coding: latin-1\n" + body, "undecodable"),
        "binary_codec.py": (b"# coding: hex\n" + body, "undecodable"),
        "utf16.py": (body.decode().encode("utf-16"), "undecodable"),
        "null.py": (body + b"x = '\0'\n", "null bytes"),
        "broken.py": (body + b"def broken(:\n", "syntax error"),
        "old.py": (b"print 'old'\n" + body, "syntax error"),
        "deep.py": (body + b"x = " + b"-" * 100_000 + b"1\n", "nested too deeply"),
        "parentheses.py": (body + b"x = " + b"(" * 5_000 + b")" * 5_000, "syntax error"),
        "line.py": (b"x = '" + b"a" * 10_000_000 + b"'\n" + body, "too large"),
    }
    root.mkdir()
    for name, (content, _) in problems.items():
        (root / name).write_bytes(content)
    (root / "circle.py").symlink_to(root / "circle.py")
    (root / "back").symlink_to(root, target_is_directory=True)
    os.mkfifo(root / "pipe.py")
    reasons = {name: reason for name, (_, reason) in problems.items()}
    return reasons | {"circle.py": "unreadable", "pipe.py": "unreadable"}


def test_hostile_files_are_counted_and_named(tmp_path: Path) -> None:
    root = tmp_path / "code"
    reasons = write_hostile(root)
    (root / "latin1.py").write_bytes(
        b"# -*- coding: latin-1 -*-\n" + function("lat\xedn", "gar\xe7on").encode("latin-1")
    )
    (root / "bom.py").write_bytes(b"\xef\xbb\xbf" + function("marked", "bom").encode())
    (root / "surrogate.py").write_bytes(b"def odd(x):\n    return x + x + '\\ud800' + x\n")
    (root / "long.py").write_bytes(b"def long(x):\n    return x, x, x, '" + b"a" * 3_000_000 + b"'")
    (root / "small.py").write_bytes(b"def small(): pass\n")
    (root / "large.py").write_bytes(b"def large(): return [" + b"1," * 2_000 + b"]\n")
    report = build(root, tmp_path / "out", group="file")
    found = {Path(skip["file"]).name: skip["reason"] for skip in report.skipped_files}
    assert found == reasons
    assert all(skip["error"] for skip in report.skipped_files)
    assert report.skipped_by_reason()["undecodable"] == 5
    assert report.skipped_functions == {"under 11 nodes": 1, "over 2000 nodes": 1}
    names = {row["name"]: row["attribute"] for row in rows(tmp_path / "out")}
    assert set(names) == {"latín", "marked", "odd", "long"}
    assert "garçon" in names["latín"]
    assert "\ufffd" in names["odd"]
    assert "a" * 48 in names["long"]


def test_a_file_that_ends_the_parser_costs_itself_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # New processes run this when they start: their parser dies of one file, as of a C overflow.
    patch = """
import ast, os
parse = ast.parse
def deadly(source, *rest):
    if "DEADLY" in source:
        os._exit(139)
    return parse(source, *rest)
ast.parse = deadly
"""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(patch)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    root = tmp_path / "code"
    write_projects(root, 2)
    (root / "project0" / "broken.py").write_text("def broken(:\n")
    (root / "project0" / "deadly.py").write_text("DEADLY = 1\n" + function("lost", "life"))
    report = build(root, tmp_path / "out", workers=2)
    assert [(s["file"], s["reason"]) for s in report.skipped_files] == [
        ("code/project0/broken.py", "syntax error"),
        ("code/project0/deadly.py", "fatal"),
    ]
    assert {row["name"] for row in rows(tmp_path / "out")} == {"read_0", "read_1", "shared"}


def test_nothing_is_imported_or_executed(tmp_path: Path) -> None:
    root = tmp_path / "code"
    root.mkdir()
    mark = tmp_path / "executed"
    (root / "__init__.py").write_text(f"open({str(mark)!r}, 'w')\n")
    text = f"import os; os.mkdir({str(mark)!r})\n" + function("name", "word")
    (root / "conftest.py").write_text(text)
    build(root, tmp_path / "out")
    assert not mark.exists()


def test_bad_input(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"Python files"):
        build(tmp_path, tmp_path / "out")
    (tmp_path / "a.py").write_text("x = 1")
    with pytest.raises(ValueError, match="at least one worker"):
        build(tmp_path, tmp_path / "out", workers=0)
    for out in (tmp_path / "a.py", tmp_path / "a.py" / "below"):
        with pytest.raises(ValueError, match=r"a folder .*--out.*, got the file .*a\.py$"):
            build(tmp_path, out)


def test_no_corpus_without_functions(tmp_path: Path) -> None:
    folder, out = tmp_path / "code", tmp_path / "out"
    folder.mkdir()
    (folder / "a.py").write_text("x = 1\ndef f(): pass\n")
    (folder / "broken.py").write_text("def broken(:\n")
    message = (
        r"got none; files: 2; files left out: syntax error \(1\); "
        r"functions left out: under 11 nodes \(1\); .*code/broken\.py: line 1"
    )
    with pytest.raises(ValueError, match=message):
        build(folder, out)
    assert [path.name for path in out.iterdir()] == ["parts"]

    (folder / "b.py").write_text(function("name", "word"))
    build(folder, out)
    before = rows(out)
    (folder / "b.py").unlink()
    with pytest.raises(ValueError, match="got none; files: 2;"):
        build(folder, out)
    assert rows(out) == before


def test_a_new_file_changes_one_part() -> None:
    files = [SourceFile("p", f"p/{i:04}.py", f"/p/{i:04}.py", i, 0) for i in range(500)]
    keys = {part_key(part) for part in cut_parts(files)}
    new = SourceFile("p", "p/0250a.py", "/p/0250a.py", 9, 0)
    changed = {part_key(part) for part in cut_parts(sorted([*files, new]))}
    assert len(keys) > 5
    assert len(keys - changed) == 1


def test_failed_write_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").write_text(function("name", "word"))
    part = tuple(find_sources([str(tmp_path)]))

    def full(*rest: object, **options: object) -> None:
        Path(str(rest[1])).write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(pyarrow.parquet, "write_table", full)
    (tmp_path / "parts").mkdir()
    with pytest.raises(OSError, match="disk full"):
        write_part(part, tmp_path / "parts" / "x.parquet")
    assert not list((tmp_path / "parts").iterdir())
