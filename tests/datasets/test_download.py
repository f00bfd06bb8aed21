"""Downloads from a server of this machine that breaks off, forgets and errs as servers do."""

from __future__ import annotations

import hashlib
import io
import re
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from dagnn.datasets import download as module
from dagnn.datasets.download import DOWNLOADS, Download, fetch, get_dataset

CONTENT = bytes(range(256)) * 40


@dataclass
class Server:
    """What it does is set by the tests."""

    url: str = ""
    content: bytes = CONTENT
    etag: str | None = '"one"'
    break_after: list[int] = field(default_factory=list)  # bytes, of the next answers
    statuses: list[int] = field(default_factory=list)  # errors, of the next answers
    ranges: bool = True
    asked: list[str | None] = field(default_factory=list)  # Range of each request


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.headers.get("Range")
            state.asked.append(asked)
            if state.statuses:
                self.send_error(state.statuses.pop(0))
                return
            start = 0
            fresh = self.headers.get("If-Range") in (None, state.etag)
            if asked and state.ranges and fresh:
                start = int(asked.removeprefix("bytes=").removesuffix("-"))
                if start >= len(state.content):
                    self.send_error(416)
                    return
            body = state.content[start:]
            self.send_response(206 if start else 200)
            if start:
                end = len(state.content)
                self.send_header("Content-Range", f"bytes {start}-{end - 1}/{end}")
            if state.etag:
                self.send_header("ETag", state.etag)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: state.break_after.pop(0)] if state.break_after else body)

        def log_message(self, *message: Any) -> None:
            pass

    monkeypatch.setattr(module, "_pause", lambda attempt: 0.0)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        state.url = f"http://127.0.0.1:{http.server_port}/file"
        threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
        yield state
        http.shutdown()


def sha256(content: bytes = CONTENT) -> str:
    return hashlib.sha256(content).hexdigest()


def blob(content: bytes = CONTENT) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def quiet(done: int, size: int | None) -> None:
    pass


def test_file_is_fetched_once(server: Server, tmp_path: Path) -> None:
    download = Download(server.url, "file.txt", sha256=sha256(), git_blob=blob())
    seen: list[tuple[int, int | None]] = []
    path, was_there = get_dataset(download, tmp_path / "new", lambda *step: seen.append(step))
    assert path.read_bytes() == CONTENT
    assert (was_there, seen[0], seen[-1]) == (False, (0, 10240), (10240, 10240))
    assert get_dataset(download, tmp_path / "new") == (path, True)
    assert len(server.asked) == 1
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(("etag", "digest"), [('"one"', None), (None, sha256()), ("W/1", sha256())])
def test_broken_transfer_is_resumed(
    server: Server, tmp_path: Path, etag: str | None, digest: str | None
) -> None:
    server.etag, server.break_after = etag, [1000, 2000]
    fetch(Download(server.url, "f", sha256=digest), tmp_path / "f", quiet)
    assert server.asked == [None, "bytes=1000-", "bytes=3000-"]
    assert (tmp_path / "f").read_bytes() == CONTENT
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_next_run_goes_on_where_the_last_ended(server: Server, tmp_path: Path) -> None:
    server.break_after = [100] * module.TRIES
    download = Download(server.url, "f", git_blob=blob())
    with pytest.raises(OSError, match=r"of 9840 bytes|of 10240 bytes; .*f.part is kept"):
        fetch(download, tmp_path / "f", quiet)
    assert not (tmp_path / "f").exists()
    kept = (tmp_path / "f.part").stat().st_size
    assert kept == 100 * module.TRIES
    fetch(download, tmp_path / "f", quiet)
    assert server.asked[-1] == f"bytes={kept}-"
    assert (tmp_path / "f").read_bytes() == CONTENT


def test_interrupt_keeps_what_has_come(server: Server, tmp_path: Path) -> None:
    def interrupt(done: int, size: int | None) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(Download(server.url, "f"), tmp_path / "f", interrupt)
    assert (tmp_path / "f.part").exists()
    assert not (tmp_path / "f").exists()


@pytest.mark.parametrize("change", ["no ranges", "another version", "nothing known"])
def test_starts_again_where_going_on_would_mix_files(
    server: Server, tmp_path: Path, change: str
) -> None:
    if change == "nothing known":
        server.etag = None
    server.break_after = [1000]
    server.statuses = []
    download = Download(server.url, "f")

    def then_change(done: int, size: int | None) -> None:
        if done == 1000:
            server.ranges = change != "no ranges"
            if change == "another version":
                server.content, server.etag = CONTENT[::-1], '"two"'

    fetch(download, tmp_path / "f", then_change)
    assert (tmp_path / "f").read_bytes() == server.content


def test_part_that_is_already_complete(server: Server, tmp_path: Path) -> None:
    (tmp_path / "f.part").write_bytes(CONTENT)
    fetch(Download(server.url, "f", sha256=sha256()), tmp_path / "f", quiet)
    assert (tmp_path / "f").read_bytes() == CONTENT


@pytest.mark.parametrize("wrong", [{"sha256": "0" * 64}, {"git_blob": "0" * 40}])
def test_another_file_is_refused_and_removed(
    server: Server, tmp_path: Path, wrong: dict[str, str]
) -> None:
    with pytest.raises(ValueError, match="0000"):
        fetch(Download(server.url, "f", **wrong), tmp_path / "f", quiet)
    assert not list(tmp_path.iterdir())


def test_file_on_disk_is_verified(server: Server, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"other")
    with pytest.raises(ValueError, match="another file"):
        get_dataset(Download(server.url, "f", sha256=sha256()), tmp_path)
    assert (tmp_path / "f").read_bytes() == b"other"
    assert not server.asked


def test_client_errors_end_at_once_and_server_errors_are_tried_again(
    server: Server, tmp_path: Path
) -> None:
    server.statuses = [404]
    with pytest.raises(OSError, match=r"/file: HTTP status 404 Not Found; .* put it at \S*f$"):
        fetch(Download(server.url, "f"), tmp_path / "f", quiet)
    assert len(server.asked) == 1
    server.statuses = [503, 500]
    fetch(Download(server.url, "f"), tmp_path / "f", quiet)
    assert (tmp_path / "f").read_bytes() == CONTENT


def test_no_server(server: Server, tmp_path: Path) -> None:
    words = (
        "could not fetch http://127.0.0.1:1/f: Connection refused; run again, or fetch it by other "
        f"means and put it at {tmp_path / 'f'}"
    )
    with pytest.raises(OSError, match=f"^{re.escape(words)}$"):
        fetch(Download("http://127.0.0.1:1/f", "f"), tmp_path / "f", quiet)
    assert not list(tmp_path.iterdir())


def test_a_file_that_was_put_there_is_taken(server: Server, tmp_path: Path) -> None:
    """As the error says, also of an archive."""
    nowhere = Download("http://127.0.0.1:1/f.zip", "data", contains="raw/list")
    with pytest.raises(OSError, match=r"put it at (\S+)$") as error:
        get_dataset(nowhere, tmp_path)
    place = Path(str(error.value).rpartition(" ")[2])
    place.write_bytes(archive({"code2/raw/list": "1"}))
    path, _ = get_dataset(nowhere, tmp_path)
    assert (path / "raw" / "list").read_text() == "1"


def archive(files: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as opened:
        for name, text in files.items():
            opened.writestr(name, text)
    return buffer.getvalue()


@pytest.mark.parametrize("root", ["", "code2/", "a/b/"])
def test_archive_becomes_a_folder(server: Server, tmp_path: Path, root: str) -> None:
    server.content = archive({f"{root}raw/list": "1", f"{root}more/x": "2", "../evil": "3"})
    download = Download(server.url, "data", contains="raw/list")
    path, was_there = get_dataset(download, tmp_path / "in")
    assert not was_there
    assert (path / "raw" / "list").read_text() == "1"
    assert (path / "more" / "x").read_text() == "2"
    assert [p.name for p in path.parent.iterdir()] == ["data"]
    assert not (tmp_path / "evil").exists()
    assert get_dataset(download, tmp_path / "in") == (path, True)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "content",
    [
        b"no archive",
        archive({"other": "1"}),
        archive({"../raw/list": "1"}),
        archive({"/raw/list": ""}),
    ],
)
def test_bad_archives_are_refused(server: Server, tmp_path: Path, content: bytes) -> None:
    server.content = content
    with pytest.raises(ValueError, match=r"archive|expected raw/list"):
        get_dataset(Download(server.url, "data", contains="raw/list"), tmp_path / "in")
    assert not (tmp_path / "in" / "data").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["in"]


def test_folder_on_disk_is_left_as_it_is(server: Server, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with pytest.raises(ValueError, match="raw/list"):
        get_dataset(Download(server.url, "data", contains="raw/list"), tmp_path)
    assert not server.asked


def test_public_files_can_be_verified() -> None:
    for name in ("na", "asia-bn"):
        assert DOWNLOADS[name].sha256 or DOWNLOADS[name].git_blob
    assert DOWNLOADS["code2"].contains == "raw/num-node-list.csv.gz"
