"""Fetch public data sets: resumed where a transfer broke off, complete or not there, and verified
where a hash is known."""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path

__all__ = ["DOWNLOADS", "Download", "fetch", "get_dataset"]

TRIES = 5
TIMEOUT = 60  # s without a byte
CHUNK = 2**20

Progress = Callable[[int, int | None], None]
_D_VAE = "https://raw.githubusercontent.com/muhanzhang/D-VAE/master/data"


@dataclass(frozen=True)
class Download:
    """A public file, and how to know that it is the right one.

    Args:
        url: Where it is.
        name: What it is called on disk; of an archive, the folder it becomes.
        sha256: Its hash, if it is known.
        git_blob: Its id in a git repository, if it is known.
        contains: A file that must be in it if it is an archive.
    """

    url: str
    name: str
    sha256: str | None = None
    git_blob: str | None = None
    contains: str | None = None


DOWNLOADS = {
    "na": Download(
        f"{_D_VAE}/final_structures6.txt",
        "final_structures6.txt",
        sha256="fea9a7dde1545e7d3bd58fd4b9c3db08a89c18e0351f770cde2fe530c4791725",
        git_blob="610cade1fa139e8de2aba3a0b61cf0179b442500",
    ),
    "asia-bn": Download(
        f"{_D_VAE}/asia_200k.txt",
        "asia_200k.txt",
        git_blob="7eec2cc93ba9bb9329c70c2feaff44e56020120c",
    ),
    "code2": Download(
        "https://snap.stanford.edu/ogb/data/graphproppred/code2.zip",
        "ogbg_code2",
        contains="raw/num-node-list.csv.gz",
    ),
}


def get_dataset(
    download: Download, folder: str | os.PathLike[str], progress: Progress = lambda done, size: None
) -> tuple[Path, bool]:
    """A data set on disk, fetched unless it is there.

    Args:
        download: Which one; see :data:`DOWNLOADS`.
        folder: Where data sets are kept.
        progress: Called with the number of bytes that are there and that of all, if it is known.

    Returns:
        Where it is, and whether it was there already. A file is verified in both cases, if a hash
        is known; of a folder only its presence is looked at, and it is never changed.
    """
    target = Path(folder) / download.name
    if target.exists():
        if download.contains is None:
            _verify(download, target)
        elif not (target / download.contains).is_file():
            raise ValueError(
                f"expected {download.contains} in {target}; move the folder away to fetch it anew"
            )
        return target, True
    target.parent.mkdir(parents=True, exist_ok=True)
    if download.contains is None:
        fetch(download, target, progress)
    else:
        archive = target.with_name(f"{target.name}.zip")
        fetch(download, archive, progress)
        _unpack(archive, target, download.contains)
        archive.unlink()
    return target, False


def fetch(download: Download, path: Path, progress: Progress) -> None:
    """Fetch a file. What has come of it is kept in ``path.part`` until it is complete.

    Raises:
        OSError: If the transfer fails; a next call goes on where it broke off.
        ValueError: If the file is not the one that was expected; nothing of it is kept.
    """
    if path.exists():
        _verify(download, path)
        return
    part = _part(path)
    for attempt in range(1, TRIES + 1):
        try:
            _transfer(download, part, progress)
            break
        except urllib.error.HTTPError as error:
            if error.code == 416 and part.exists():
                part.unlink()  # there is nothing behind it: it is complete, or of another file
            elif error.code < 500 or attempt == TRIES:
                status = f"HTTP status {error.code} {error.reason}"
                raise OSError(_failure(download, path, status)) from error
        except (OSError, HTTPException) as error:
            if attempt == TRIES:
                raise OSError(_failure(download, path, _reason(error))) from error
        time.sleep(_pause(attempt))
    try:
        _verify(download, part)
    except ValueError:
        part.unlink()
        raise
    os.replace(part, path)


def _part(path: Path) -> Path:
    """What has come of a file."""
    return path.with_name(f"{path.name}.part")


def _failure(download: Download, path: Path, reason: str) -> str:
    """What to say of a transfer that failed, and what helps."""
    part = _part(path)
    kept = f"{part} is kept, run again to go on, or" if part.exists() else "run again, or"
    return (
        f"could not fetch {download.url}: {reason}; {kept} fetch it by other means and put it at "
        f"{path}"
    )


def _reason(error: Exception) -> str:
    """Why a transfer failed: what is inside of urllib's wrapping, without the system's number."""
    inner = getattr(error, "reason", error)
    return getattr(inner, "strerror", None) or str(inner)


def _pause(attempt: int) -> float:
    """Seconds to wait after a failure."""
    return float(2 ** (attempt - 1))


def _transfer(download: Download, part: Path, progress: Progress) -> None:
    """Fetch what is missing of a file."""
    there = part.stat().st_size if part.exists() else 0
    is_known = download.sha256 is not None or download.git_blob is not None
    # The same bytes as on disk, not compressed for the way; else sizes say nothing.
    headers = {"User-Agent": "dagnn", "Accept-Encoding": "identity"}
    version = part.with_name(f"{part.name}.version")  # of the file that the server had
    if there and (is_known or version.exists()):
        headers["Range"] = f"bytes={there}-"
    if there and version.exists():
        headers["If-Range"] = version.read_text(encoding="utf-8")
    request = urllib.request.Request(download.url, headers=headers)
    response: HTTPResponse
    with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
        resumed = response.status == 206 and _starts_at(response) == there
        if response.status == 206 and not resumed:
            part.unlink()
            raise OSError("the server went on at another place than it was asked to")
        mark = response.headers.get("ETag") or response.headers.get("Last-Modified")
        if mark is not None and not mark.startswith("W/"):
            version.write_text(mark, encoding="utf-8")
        done = there if resumed else 0
        length = response.headers.get("Content-Length")
        size = done + int(length) if length is not None else None
        with part.open("ab" if resumed else "wb") as file:
            progress(done, size)
            while block := response.read(CHUNK):
                file.write(block)
                done += len(block)
                progress(done, size)
    if size is not None and done < size:
        raise OSError(f"the connection ended after {done} of {size} bytes")
    version.unlink(missing_ok=True)


def _starts_at(response: HTTPResponse) -> int:
    """The first byte of a partial answer: ``Content-Range: bytes 5-9/10``."""
    unit, _, place = response.headers.get("Content-Range", "").partition(" ")
    first = place.partition("-")[0]
    return int(first) if unit == "bytes" and first.isdigit() else -1


def _verify(download: Download, path: Path) -> None:
    for name, expected, start in (
        ("sha256", download.sha256, b""),
        ("sha1", download.git_blob, f"blob {path.stat().st_size}\0".encode()),
    ):
        if expected is None:
            continue
        hashed = hashlib.new(name, start, usedforsecurity=False)
        with path.open("rb") as file:
            while block := file.read(CHUNK):
                hashed.update(block)
        if hashed.hexdigest() != expected:
            raise ValueError(
                f"expected {download.name} with the {'git blob id' if start else name} {expected}, "
                f"got {hashed.hexdigest()}: {path} is another file; remove it and fetch it anew"
            )


def _unpack(archive: Path, target: Path, contains: str) -> None:
    """Unpack the folder that has a certain file in it; checksums are verified on the way."""
    try:
        with zipfile.ZipFile(archive) as opened:
            names = opened.namelist()
            roots = [name.removesuffix(contains) for name in names if name.endswith(contains)]
            root = min(roots, key=len, default=None)
            if root is None or ".." in Path(root).parts or Path(root).is_absolute():
                raise ValueError(f"expected {contains} in {archive}; remove it and fetch it anew")
            with tempfile.TemporaryDirectory(dir=target.parent, prefix=".unpacking") as folder:
                content = Path(folder) / "content"
                opened.extractall(content, [name for name in names if name.startswith(root)])
                os.replace(content / root, target)
    except zipfile.BadZipFile as error:
        archive.unlink()
        raise ValueError(f"{archive} was a damaged archive: {error}; fetch it anew") from error
