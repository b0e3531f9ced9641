"""The journal of a search on a disk that machines share: a file of JSON lines, only appended to.

SQLite's own locks and its cache of pages do not work over a network.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from filelock import BaseFileLock


class JournalLock:
    """The lock of a journal, which the system releases when its owner dies.

    Optuna's own lock is a file, which a killed process leaves behind for half a minute.
    """

    def __init__(self, lock: "BaseFileLock", path: Path):
        self.lock, self.path = lock, path

    def acquire(self) -> bool:
        self.lock.acquire()
        drop_unfinished_line(self.path)
        return True

    def release(self) -> None:
        self.lock.release()


def open_journal(path: Path, lock: "BaseFileLock") -> Any:
    """Return Optuna's storage in a journal."""
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    locked: Any = JournalLock(lock, path)
    return JournalStorage(JournalFileBackend(str(path), lock_obj=locked))


def drop_unfinished_line(path: Path) -> None:
    """Remove the half line that a process wrote when it was killed; called under the lock."""
    with open(path, "ab+") as file:
        end = file.seek(0, os.SEEK_END)
        if end == 0:
            return
        file.seek(end - 1)
        if file.read(1) == b"\n":
            return
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
