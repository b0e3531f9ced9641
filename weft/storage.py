"""Write files whole or not at all, and let one process at a time use a folder."""

import contextlib
import errno
import os
import re
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from weft.errors import UserError

ESCAPE_SURROGATES = (
    "backslashreplace"  # what UTF-8 has no bytes for, half a surrogate pair, as JSON does
)
LOCK_FILE = ".lock"  # in a folder that a process is writing to
# What locking answers on file systems that cannot lock, such as some network shares.
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}


class WriteError(UserError):
    """A file that could not be written; what stood there before is unchanged."""


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str], *, durable: bool = False) -> Iterator[Path]:
    """Yield a temporary path; it takes the name `path` when the block succeeds.

    The file gets the permissions that the umask gives to new files, also where the writer is
    stricter, as safetensors is. With `durable`, the contents reach the disk before the name does,
    so that a power failure leaves the old file or the new one. A device or a pipe is not replaced:
    it is given the contents.
    """
    target = Path(os.path.realpath(path))
    special = target.exists() and not target.is_file() and not target.is_dir()
    folder = Path(tempfile.gettempdir()) if special else target.parent
    part = folder / f".{target.name}.{os.getpid()}.part"
    try:
        part.touch()
        mode = part.stat().st_mode & 0o777
        yield part
        os.chmod(part, mode)
        if durable:
            with part.open("rb+") as file:
                os.fsync(file.fileno())
        if special:
            with part.open("rb") as source, target.open("wb") as out:
                shutil.copyfileobj(source, out)
        else:
            os.replace(part, target)
    except Exception as error:
        reason = write_failure(error)
        filename = getattr(error, "filename", None)
        if reason is None or filename not in (None, str(part), str(target), part, target):
            raise  # about something else, such as a file that is read meanwhile
        raise cannot_write(path, reason) from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def write_text(
    path: str | os.PathLike[str], text: str, *, errors: str = "strict", durable: bool = False
) -> None:
    """Write a file of UTF-8 text whole or not at all."""
    write_bytes(path, text.encode("utf-8", errors), durable=durable)


def write_bytes(path: str | os.PathLike[str], data: bytes, *, durable: bool = False) -> None:
    """Write a file whole or not at all."""
    with atomic_write(path, durable=durable) as part:
        part.write_bytes(data)


@contextlib.contextmanager
def atomic_jsonl(path: str | os.PathLike[str]) -> Iterator[IO[str] | None]:
    """Yield a file for lines of JSON that appears whole or not at all; nothing without a path."""
    if not os.fspath(path):
        yield None
        return
    with (
        atomic_write(path) as part,
        part.open("w", encoding="utf-8", errors=ESCAPE_SURROGATES) as file,
    ):
        yield file


def append_line(path: Path, text: str) -> None:
    """Add a line to a log; on a full disk the log stays as it was."""
    data = (text + "\n").encode("utf-8", ESCAPE_SURROGATES)
    try:
        with path.open("ab", buffering=0) as file:
            before = os.fstat(file.fileno()).st_size
            try:
                while data:
                    data = data[file.write(data) :]
            except OSError:
                with contextlib.suppress(OSError):
                    file.truncate(before)
                raise
    except OSError as error:
        raise cannot_write(path, error.strerror or str(error)) from error


@contextlib.contextmanager
def atomic_write_folder(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary folder; its files move into `folder` when all of them are written."""
    target = Path(os.path.realpath(folder))
    name = f".{target.name}.{os.getpid()}.part"
    # Inside an existing folder, which may be a mount point or have a parent that is read-only.
    part = target / name if target.is_dir() else target.with_name(name)
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        yield part
        if part.parent == target:
            for path in sorted(p for p in part.rglob("*") if p.is_file()):
                destination = target / path.relative_to(part)
                destination.parent.mkdir(parents=True, exist_ok=True)
                os.replace(path, destination)
        else:
            os.replace(part, target)
    except WriteError as error:
        raise WriteError(str(error).replace(str(part), str(folder))) from error
    except Exception as error:
        reason = write_failure(error)
        named = str(getattr(error, "filename", None) or target)
        if reason is None or not named.startswith(str(target.parent)):
            raise
        raise cannot_write(named.replace(str(part), str(folder)), reason) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def copy_folder(source: Path, target: Path) -> Path:
    """Copy a folder in place of another, whole or not at all."""
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        shutil.rmtree(part, ignore_errors=True)
        shutil.copytree(source, part)
        shutil.rmtree(target, ignore_errors=True)
        os.replace(part, target)
    except shutil.Error as error:  # a list of (from, to, reason)
        raise cannot_write(target, str(error.args[0][0][2]).rstrip(".")) from error
    except OSError as error:
        raise cannot_write(target, error.strerror or str(error)) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return target


def remove_leftovers(folder: Path) -> None:
    """Remove temporary files of a process that was killed; call it under the folder's lock."""
    for path in [*folder.glob(".*.part"), *folder.glob("*/.*.part")]:
        if re.fullmatch(r"\..+\.\d+\.part", path.name):
            with contextlib.suppress(OSError):
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def write_failure(error: BaseException) -> str | None:
    """Return why a file could not be written, or None for any other error."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if type(error).__name__ == "SafetensorError":
        match = re.search(r"I/O error: (.+?)(?: \(os error \d+\))?$", str(error))
        return match[1] if match else None
    return None


def cannot_write(path: object, reason: str) -> WriteError:
    """The error for a file that could not be written."""
    return WriteError(f"Cannot write {path}: {reason}.")


@contextlib.contextmanager
def lock_folder(folder: Path, doing: str = "training") -> Iterator[str]:
    """Make a folder and hold it, or say in a UserError which process is at work in it.

    The system releases the lock when a process ends, however it ends. Yields a note where the file
    system has no locks. A folder that was made here and stays empty is removed again.
    """
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; give a folder to -o.")
    created = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    try:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            descriptor, note = _lock(folder, doing)
        except OSError as error:
            raise UserError(f"Cannot write to {folder}: {error.strerror or error}.") from None
        try:
            yield note
        finally:
            _unlock(folder, descriptor)
    finally:
        with contextlib.suppress(OSError):
            for parent in created:
                parent.rmdir()


def _lock(folder: Path, doing: str) -> tuple[int, str]:
    """Return the open lock file, and a note where nothing could be locked."""
    path, note = folder / LOCK_FILE, ""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _lock_file(descriptor)
        except OSError as error:
            busy = error.errno not in _NO_LOCKS
            if busy:
                os.lseek(descriptor, 0, os.SEEK_SET)
                holder = os.read(descriptor, 200).decode("utf-8", "replace")
                os.close(descriptor)
                pid, _, host = holder.partition(" ")
                where = f" on {host}" if host and host != socket.gethostname() else ""
                raise UserError(
                    f"process {pid or 'unknown'}{where} is {doing} in {folder}; wait for it, or "
                    "choose another -o."
                ) from None
            note = f"{folder} is on a file system without locks: let no other process write there"
        # Another process may have removed the file between our opening and locking it.
        with contextlib.suppress(FileNotFoundError):
            if note or os.path.samestat(os.fstat(descriptor), os.stat(path)):
                try:
                    os.ftruncate(descriptor, 0)
                    os.write(descriptor, f"{os.getpid()} {socket.gethostname()}".encode())
                except OSError:
                    _unlock(folder, descriptor)
                    raise
                return descriptor, note
        os.close(descriptor)


def _unlock(folder: Path, descriptor: int) -> None:
    """Give a folder back."""
    with contextlib.suppress(OSError):
        os.unlink(folder / LOCK_FILE)  # before it is free: see the end of _lock
    os.close(descriptor)


def _lock_file(descriptor: int) -> None:
    """Lock an open file, or raise OSError at once."""
    if os.name == "nt":
        import msvcrt

        # Far behind what is written: on Windows, locked bytes cannot be read by others.
        os.lseek(descriptor, 1 << 20, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        os.lseek(descriptor, 0, os.SEEK_SET)
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
