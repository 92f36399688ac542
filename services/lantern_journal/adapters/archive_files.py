"""Archive files in a folder: each run is a gzip member of its own, so that it can be read alone."""

import asyncio
import gzip
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from lantern_journal.domain.archives import ArchivedRun
from lantern_kernel import archive, reasons
from lantern_kernel.archive import CheckedRun
from lantern_kernel.errors import InvalidField, LanternError

_LEVEL = 6
_READ_BYTES = 64 * 1024


class FolderWriter:
    """See `lantern_journal.ports.ArchiveWriter`. Under another name until it is whole."""

    def __init__(self, path: Path, header: bytes) -> None:
        self._path = path
        self._draft = path.with_name(f".{path.name}.draft")
        self._file: BinaryIO = self._draft.open("wb")
        self._file.write(gzip.compress(header, _LEVEL, mtime=0))
        self._began = self._file.tell()
        self._member: gzip.GzipFile | None = None

    @property
    def size(self) -> int:
        """See ArchiveWriter."""
        return self._file.tell()

    async def begin_run(self) -> None:
        """See ArchiveWriter."""
        self._began = self._file.tell()
        self._member = gzip.GzipFile("", "wb", _LEVEL, self._file, mtime=0)

    async def add(self, lines: Sequence[bytes]) -> None:
        """See ArchiveWriter."""
        assert self._member is not None, "a run was begun"
        await asyncio.to_thread(self._member.write, b"".join(lines))

    async def end_run(self) -> tuple[int, int]:
        """See ArchiveWriter."""
        assert self._member is not None, "a run was begun"
        await asyncio.to_thread(self._member.close)
        self._member = None
        return self._began, self._file.tell() - self._began

    async def drop_run(self) -> None:
        """See ArchiveWriter."""
        if self._member is not None:
            self._member.close()
            self._member = None
            self._file.seek(self._began)
            self._file.truncate()

    async def publish(self) -> None:
        """See ArchiveWriter: bytes, then name, then folder reach the disk."""
        await asyncio.to_thread(self._publish)

    def _publish(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._draft.rename(self._path)
        _sync_folder(self._path.parent)

    async def abandon(self) -> None:
        """See ArchiveWriter."""
        self._file.close()
        self._draft.unlink(missing_ok=True)


class FolderFiles:
    """See `lantern_journal.ports.ArchiveFiles`.

    Args:
        folder: Is made where it is not there; of its parents none is.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            folder.mkdir(exist_ok=True)
            _sync_folder(folder)
        except OSError as error:
            raise InvalidField("LANTERN_ARCHIVE_DIR", f"{folder} cannot be used: {error.strerror}") from None

    async def create(self, name: str, header: bytes) -> FolderWriter:
        """See ArchiveFiles."""
        return await asyncio.to_thread(FolderWriter, self._folder / name, header)

    async def check(self, name: str, run: ArchivedRun) -> CheckedRun:
        """See ArchiveFiles."""
        return await asyncio.to_thread(self._check, name, run)

    def _check(self, name: str, run: ArchivedRun) -> CheckedRun:
        try:
            with (self._folder / name).open("rb") as file:
                lines = _lines(_inflated(file, run.offset, run.length))
                head = archive.read_line(next(lines, b""))
                return archive.check_run(head, lines)
        except (LanternError, OSError, zlib.error) as error:
            message = error.message if isinstance(error, LanternError) else f"{name} cannot be read: {error}"
            return CheckedRun(run_id=run.run_id, run={}, event_count=0, head_hash=b"", fault=message)

    async def remove(self, name: str) -> None:
        """See ArchiveFiles."""

        def unlink() -> None:
            path = self._folder / name
            path.unlink(missing_ok=True)
            path.with_name(f".{name}.draft").unlink(missing_ok=True)
            _sync_folder(self._folder)

        await asyncio.to_thread(unlink)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _inflated(file: BinaryIO, offset: int, length: int) -> Iterator[bytes]:
    """The bytes of one gzip member, piece by piece."""
    inflater = zlib.decompressobj(wbits=31)
    file.seek(offset)
    while length > 0:
        piece = file.read(min(_READ_BYTES, length))
        if not piece:
            break
        length -= len(piece)
        yield inflater.decompress(piece)
    yield inflater.flush()
    if not inflater.eof or inflater.unused_data or length:
        raise LanternError(reasons.ARCHIVE_FAULTY, "the compressed run does not end where it should")


def _lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        yield from lines
    if rest:
        yield rest
