from __future__ import annotations

import os
from pathlib import Path

import pytest

from dagnn.datasets.sources import SourceFile, find_sources, unmarked_folder


def write(path: Path, text: str = "x = 1\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def projects(files: list[SourceFile]) -> dict[str, str]:
    return {file.name: file.project for file in files}


def test_projects_of_a_folder(tmp_path: Path) -> None:
    root = tmp_path / "code"
    write(root / "alone.py")
    write(root / "package" / "deep" / "a.py")
    write(root / "package" / "b.py")
    write(root / "group" / "cloned" / "src" / "c.py")
    (root / "group" / "cloned" / ".git").mkdir()
    write(root / "group" / "d.py")
    write(root / "readme.txt")
    assert projects(find_sources([str(root)])) == {
        "code/alone.py": "code/alone",
        "code/package/deep/a.py": "code/package",
        "code/package/b.py": "code/package",
        "code/group/cloned/src/c.py": "cloned",
        "code/group/d.py": "code/group",
    }


@pytest.mark.parametrize("mark", [".git", "pyproject.toml", "setup.py", "__init__.py"])
def test_a_folder_that_is_a_project_is_one(mark: str, tmp_path: Path) -> None:
    write(tmp_path / "mine" / "a.py")
    write(tmp_path / "mine" / "tests" / "b.py")
    (tmp_path / "mine" / mark).write_text("gitdir: elsewhere")
    assert set(projects(find_sources([str(tmp_path / "mine")])).values()) == {"mine"}
    above = set(projects(find_sources([str(tmp_path)])).values())
    assert above == {"mine" if mark == ".git" else f"{tmp_path.name}/mine"}


def test_each_of_several_folders_is_a_project(tmp_path: Path) -> None:
    for name in ("one/a.py", "one/deep/b.py", "two/c.py", "two/d.py"):
        write(tmp_path / name)
    write(tmp_path / "cloned" / "inner" / "e.py")
    (tmp_path / "cloned" / "inner" / ".git").mkdir()
    write(tmp_path / "cloned" / "f.py")
    given = [str(tmp_path / name) for name in ("one", "two", "cloned")]
    assert projects(find_sources(given)) == {
        "one/a.py": "one",
        "one/deep/b.py": "one",
        "two/c.py": "two",
        "two/d.py": "two",
        "cloned/inner/e.py": "inner",
        "cloned/f.py": "cloned/f",
    }
    assert unmarked_folder(given) is None


@pytest.mark.parametrize("mark", ["pyproject.toml", "setup.py", "setup.cfg"])
def test_one_of_several_folders_that_holds_projects_is_not_one(mark: str, tmp_path: Path) -> None:
    write(tmp_path / "plain" / "a.py")
    for name in ("first", "second"):
        write(tmp_path / "many" / name / "b.py")
        write(tmp_path / "many" / name / mark)
    found = find_sources([str(tmp_path / name) for name in ("plain", "many")])
    assert set(projects(found).values()) == {"plain", "many/first", "many/second"}


def test_installed_packages_beside_another_folder_are_projects(tmp_path: Path) -> None:
    write(tmp_path / "plain" / "a.py")
    for folder in ("site-packages", "elsewhere"):
        write(tmp_path / folder / "pack" / "b.py")
        write(tmp_path / folder / "module.py")
    write(tmp_path / "elsewhere" / "pack-1.0.dist-info" / "METADATA", "")
    for folder in ("site-packages", "elsewhere"):
        found = find_sources([str(tmp_path / folder), str(tmp_path / "plain")])
        assert set(projects(found).values()) == {"plain", f"{folder}/pack", f"{folder}/module"}


def test_a_single_folder_that_nothing_marks_is_told(tmp_path: Path) -> None:
    given = str(tmp_path)
    write(tmp_path / "entry" / "a.py")
    assert unmarked_folder([given]) == unmarked_folder(["stdlib", given]) == given
    assert unmarked_folder([]) is None
    write(tmp_path / "entry" / "setup.py")
    assert unmarked_folder([given]) is None  # a folder of projects
    assert unmarked_folder([str(tmp_path / "entry")]) is None  # a project


@pytest.mark.parametrize(
    ("group", "expected"),
    [("folder", {"code", "code/sub"}), ("file", {"code/a.py", "code/sub/b.py", "code/sub/c.py"})],
)
def test_other_groupings(tmp_path: Path, group: str, expected: set[str]) -> None:
    for name in ("a.py", "sub/b.py", "sub/c.py"):
        write(tmp_path / "code" / name)
    found = find_sources([str(tmp_path / "code")], group=group)
    assert set(projects(found).values()) == expected


def test_a_single_file(tmp_path: Path) -> None:
    path = write(tmp_path / "folder" / "script", "def f(): pass")
    [file] = find_sources([str(path)])
    assert (file.name, file.project, file.size) == ("folder/script", "folder", 13)
    assert file.modified == path.stat().st_mtime_ns


def test_a_file_that_is_not_python_is_refused(tmp_path: Path) -> None:
    table = write(tmp_path / "file.csv", "a,b\n")
    with pytest.raises(ValueError, match=r"a Python file \(\*\.py\).*, got .*file\.csv"):
        find_sources([str(table)])
    assert len(find_sources([str(write(tmp_path / "stub.pyi"))])) == 1


def test_left_out(tmp_path: Path) -> None:
    write(tmp_path / "kept.py")
    for folder in (".hidden", "__pycache__", "site-packages", "venv"):
        write(tmp_path / folder / "a.py")
    write(tmp_path / "venv" / "pyvenv.cfg")
    assert [Path(f.path).name for f in find_sources([str(tmp_path)])] == ["kept.py"]


def test_links(tmp_path: Path) -> None:
    real = write(tmp_path / "real" / "a.py")
    (tmp_path / "real" / "loop").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "real" / "same.py").symlink_to(real)
    (tmp_path / "real" / "circle.py").symlink_to(tmp_path / "real" / "circle.py")
    (tmp_path / "real" / "broken.py").symlink_to(tmp_path / "nowhere.py")
    os.mkfifo(tmp_path / "real" / "pipe.py")
    (tmp_path / "real" / "folder.py").mkdir()
    found = {Path(file.path).name: file.size for file in find_sources([str(tmp_path)])}
    assert found == {"a.py": 6, "circle.py": -1, "broken.py": -1, "pipe.py": -1}


def test_a_file_is_found_once(tmp_path: Path) -> None:
    path = write(tmp_path / "code" / "a.py")
    assert len(find_sources([str(tmp_path), str(path), str(path.parent)])) == 1


def test_names_that_are_no_text(tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/bad\xff.py"
    Path(os.fsdecode(name)).write_text("x = 1\n")
    [file] = find_sources([str(tmp_path)])
    assert file.name.endswith("bad\ufffd.py")
    assert os.path.exists(file.path)


def test_installed_distribution_and_standard_library() -> None:
    files = find_sources(["networkx", "stdlib"])
    found = set(projects(files).values())
    assert {"networkx", "stdlib/asyncio", "stdlib/argparse"} <= found
    assert not {"stdlib/test", "stdlib/site-packages"} & found
    assert files == sorted(files)


def test_default_is_everything() -> None:
    assert {"stdlib/asyncio", "networkx", "numpy"} <= set(projects(find_sources()).values())


@pytest.mark.parametrize("here", [".", "./", "../code"])
def test_the_folder_one_is_in(here: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "code"
    for name in ("a/b/module.py", "c/module.py", "module.py"):
        write(root / name)
    expected = projects(find_sources([str(root)]))
    monkeypatch.chdir(root)
    assert projects(find_sources([here])) == expected


def test_the_name_of_a_package_is_not_that_of_its_distribution() -> None:
    with pytest.raises(FileNotFoundError, match="got 'yaml', a package of the distribution PyYAML"):
        find_sources(["yaml"])


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="got an empty name"):
        find_sources([""])
    with pytest.raises(FileNotFoundError, match="no-such-thing"):
        find_sources(["no-such-thing"])
    with pytest.raises(ValueError, match="project, folder, file"):
        find_sources([], group="line")
