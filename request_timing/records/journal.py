"""The samples of a run while it goes on, in a file of their own until the whole record is written.

A journal is never there without its header: it is written under another name and then linked, so
that whoever reads it, at any moment and after any kill, finds a readable record. Nothing is ever
overwritten. A name that the user gave is used or refused; a default name that is taken gives way to
the next free one (NAME-2, NAME-3, ...).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from request_timing.records.run import RecordError, Run, dumps
from request_timing.records.sample import Sample


def journal_path(out: Path) -> Path:
    """Where the samples of a run are until `out` is written."""
    return out.with_name(out.name + ".partial.jsonl")


def numbered(path: Path) -> Iterator[Path]:
    """PATH, PATH-2, PATH-3 and so on, the number before the suffix."""
    yield path
    for number in itertools.count(2):
        yield path.with_name(f"{path.stem}-{number}{path.suffix}")


def free_name(path: Path, beside: Iterable[str] = ()) -> Path:
    """The first of PATH, PATH-2, ... that is free: no record, no journal, and no file with one of
    the suffixes `beside`."""
    suffixes = list(beside)
    return next(name for name in numbered(path) if not any(
        os.path.lexists(taken)
        for taken in (name, journal_path(name), *map(name.with_suffix, suffixes))))


def check_writable(out: Path) -> None:
    """Raises RecordError where the output or its journal exists, or the folder is not writable."""
    if problem := _taken(out):
        raise problem
    try:
        with tempfile.TemporaryFile(dir=out.parent):
            pass
    except OSError as error:
        raise _not_writable(out, error) from None


def _taken(out: Path) -> RecordError | None:
    path = journal_path(out)
    if os.path.lexists(out):
        return RecordError(f"{out} exists, and a result is never overwritten: "
                           "give --out another name, or move the file")
    if os.path.lexists(path):
        return RecordError(
            f"{path} exists: another run is writing it, or a killed run left its samples there "
            "(--show prints them); move it, or give --out another name")
    return None


def _not_writable(out: Path, error: OSError) -> RecordError:
    return RecordError(f"--out {out}: cannot write there ({error.strerror}); "
                       "give a path in a folder that exists and is writable")


class Journal:
    """The samples of a run as they come, one per line, so that a kill loses at most one request.

    `OUT.partial.jsonl` is beside the output from the start of the run until `finish` has written
    the whole. Raises RecordError where it cannot be created, or where its name or that of the
    output is taken; with `may_rename`, the next free name is used instead, and `out` says which.
    """

    def __init__(self, out: Path, run: Run, *, may_rename: bool = False) -> None:
        self.run = run
        for name in numbered(out):
            problem = _taken(name)
            if problem is None:
                try:
                    self._file = _create_whole(journal_path(name), dumps(run.header()) + "\n")
                    break
                except FileExistsError:  # another run was faster
                    problem = _taken(name) or RecordError(f"{name} was taken; run this again")
                except OSError as error:
                    raise _not_writable(name, error) from None
            if not may_rename:
                raise problem
        self.out = name
        self.path = journal_path(name)

    def add(self, sample: Sample) -> None:
        """Keep the sample in the run and on disk, now.

        A full disk does not end the run: the sample stays in memory for `finish`.
        """
        self.run.samples.append(sample)
        with contextlib.suppress(OSError):
            self._write(sample.to_json())

    def discard(self) -> None:
        """Nothing was measured: leave nothing on disk."""
        with contextlib.suppress(OSError):
            self._file.close()
        self.path.unlink(missing_ok=True)

    def finish(self, to_text: Callable[[Run], str], *, complete: bool) -> Path:
        """Write the record, as `to_text` makes it, atomically under the output's name, and remove
        the journal.

        If something has taken the name meanwhile, the next free `NAME-2.json` is used; the path
        that was written is returned. Raises RecordError where it cannot be written; the journal
        then stays.
        """
        self.run.complete = complete
        with contextlib.suppress(OSError):
            self._file.close()
        whole = self.out.with_name(self.out.name + ".writing")
        try:
            with whole.open("w", encoding="utf-8") as file:
                file.write(to_text(self.run))
                file.flush()
                os.fsync(file.fileno())
            path = _claim(whole, self.out)
        except OSError as error:
            whole.unlink(missing_ok=True)
            raise RecordError(f"{self.out}: cannot be written ({error.strerror})") from None
        self.path.unlink(missing_ok=True)
        return path

    def _write(self, value: dict[str, Any]) -> None:
        self._file.write(dumps(value) + "\n")
        self._file.flush()


def _create_whole(path: Path, text: str) -> IO[str]:
    """A new file that holds `text` from the first moment it has its name, open for more.

    Raises FileExistsError where the name is taken, OSError where it cannot be made.
    """
    handle, temporary = tempfile.mkstemp(prefix=f"{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)  # mkstemp's is for its owner alone
        file = open(handle, "w", encoding="utf-8")  # noqa: SIM115 (closed by finish or discard)
    except OSError:
        os.close(handle)
        os.unlink(temporary)
        raise
    try:
        file.write(text)
        file.flush()
        _link_new(temporary, path, may_be_empty=False)
    except OSError:
        with contextlib.suppress(OSError):
            file.close()
        os.unlink(temporary)
        raise
    return file


def _link_new(temporary: str | Path, path: Path, *, may_be_empty: bool) -> None:
    """Give a complete file its name, and take away the temporary one; never over another file.

    may_be_empty: on a file system without links, first hold the name with an empty file, so that
    nobody else can take it. Raises FileExistsError where the name is taken.
    """
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except (OSError, NotImplementedError):
        # A file system without links: os.replace is whole or not at all too, but overwrites. A
        # journal must not be seen empty, so another run could still take its name in between.
        if may_be_empty:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        elif os.path.lexists(path):
            raise FileExistsError(str(path)) from None
        os.replace(temporary, path)
        return
    os.unlink(temporary)


def _claim(whole: Path, out: Path) -> Path:
    """Move `whole` to the first free of OUT, OUT-2, OUT-3 ..., never over an existing file."""
    for target in numbered(out):
        try:
            _link_new(whole, target, may_be_empty=True)
        except FileExistsError:
            continue
        return target
    raise AssertionError("numbered() does not end")
