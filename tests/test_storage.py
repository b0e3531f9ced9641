"""Files that appear whole or not at all, and folders that one process holds."""

import errno
import os
import signal
import socket
import stat
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.fixtures.file_system import largest_file, umask
from weft import storage
from weft.errors import UserError
from weft.storage import WriteError, append_line, atomic_write, atomic_write_folder, lock_folder


def names(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_failed_write_leaves_the_old_file_alone(tmp_path):
    path = tmp_path / "a.txt"
    storage.write_text(path, "old")
    with largest_file(7), pytest.raises(WriteError, match=f"^Cannot write {path}: File too large"):
        storage.write_text(path, "long" * 100)
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_an_error_of_safetensors_names_the_file(tmp_path):
    path = tmp_path / "w.safetensors"
    said = pytest.raises(WriteError, match=f"^Cannot write {path}: File too large.$")
    with largest_file(97), said, atomic_write(path) as part:
        save_file({"a": np.zeros(1000)}, part)
    assert names(tmp_path) == []


def test_other_errors_inside_atomic_write_propagate(tmp_path):
    said = pytest.raises(FileNotFoundError, match="absent")
    with said, atomic_write(tmp_path / "a"):
        open(tmp_path / "absent")
    with pytest.raises(ZeroDivisionError), atomic_write(tmp_path / "a"):
        _ = 1 / 0
    assert names(tmp_path) == []


@pytest.mark.parametrize(("mask", "expected"), [(0o022, 0o644), (0o027, 0o640)])
def test_files_honour_the_umask(mask, expected, tmp_path):
    with umask(mask):
        with atomic_write(tmp_path / "w") as part:
            save_file({"a": np.zeros(3)}, part)
        storage.write_text(tmp_path / "t", "text", durable=True)
    for path in tmp_path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == expected, path
    assert load_file(tmp_path / "w")["a"].tolist() == [0, 0, 0]


def test_temporary_names_hold_the_process(tmp_path):
    with atomic_write(tmp_path / "a") as part:
        assert str(os.getpid()) in part.name
        assert names(tmp_path) == [part.name]


def test_a_link_is_written_through_and_a_pipe_is_not_replaced(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    storage.write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    storage.write_text(tmp_path / "pipe", "through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_log_never_ends_in_half_a_line(tmp_path):
    path = tmp_path / "log.txt"
    append_line(path, "first")
    with largest_file(11), pytest.raises(WriteError, match=r"log\.txt: File too large"):
        append_line(path, "second line")
    append_line(path, "third \udc80")
    assert path.read_text() == "first\nthird \\udc80\n"


@pytest.mark.parametrize("present", [False, True])
def test_a_folder_changes_only_when_all_its_files_are_written(present, tmp_path):
    folder = tmp_path / "model"
    if present:
        folder.mkdir()
        (folder / "a").write_text("old")
    before = names(tmp_path)
    said = pytest.raises(WriteError, match=f"^Cannot write {folder}/b: File too large.$")
    with largest_file(97), said, atomic_write_folder(folder) as part:
        (part / "a").write_text("new")
        storage.write_text(part / "b", "long" * 100)
    assert names(tmp_path) == before
    assert not present or ((folder / "a").read_text() == "old" and names(folder) == ["a"])
    with atomic_write_folder(folder) as part:
        (part / "inner").mkdir()
        (part / "inner" / "b").write_text("new")
    assert (folder / "inner" / "b").read_text() == "new"
    assert names(folder) == (["a", "inner"] if present else ["inner"])


def test_leftovers_of_a_killed_process_are_removed(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / ".model.123.part").mkdir()
    for name in ("checkpoints/.last.123.part", ".hidden", "notes.part"):
        (tmp_path / name).write_text("x")
    storage.remove_leftovers(tmp_path)
    assert names(tmp_path) == [".hidden", "checkpoints", "notes.part"]
    assert names(tmp_path / "checkpoints") == []


HOLD = """
import sys, time
from pathlib import Path
from weft.storage import lock_folder
with lock_folder(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_lock_names_its_process_and_ends_with_it(tmp_path):
    folder = tmp_path / "new" / "run"
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        expected = f"^process {process.pid} is training in {folder}; wait for it, or choose another"
        with pytest.raises(UserError, match=expected), lock_folder(folder):
            pass
        (folder / "checkpoint").write_text("x")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    with lock_folder(folder) as note:
        assert note == ""
        with (
            pytest.raises(UserError, match=f"process {os.getpid()} is training"),
            lock_folder(folder),
        ):
            pass
    assert names(folder) == ["checkpoint"]
    with (
        largest_file(0),
        pytest.raises(UserError, match="File too large"),
        lock_folder(tmp_path / "b"),
    ):
        pass
    assert names(tmp_path) == ["new"]


def test_a_lock_leaves_no_empty_folder_behind(tmp_path):
    with lock_folder(tmp_path / "a" / "b"):
        assert (tmp_path / "a" / "b").is_dir()
    assert names(tmp_path) == []


def test_a_lock_of_another_machine_says_which(tmp_path, monkeypatch):
    with lock_folder(tmp_path):
        monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
        with (
            pytest.raises(UserError, match=r"process \d+ on \S+ is training"),
            lock_folder(tmp_path),
        ):
            pass


def test_a_file_system_without_locks_is_used_with_a_note(tmp_path, monkeypatch):
    def refuse(descriptor):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(storage, "_lock_file", refuse)
    with lock_folder(tmp_path) as note:
        assert "without locks" in note
