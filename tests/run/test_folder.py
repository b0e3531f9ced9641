"""Room on the disk, and trials that run out of memory."""

import shutil

import pytest

from tests.fixtures import small
from tests.fixtures.command import ok, train
from weft.compare.trial import ERROR
from weft.compare.worker import _write_error
from weft.errors import UserError
from weft.run import folder
from weft.storage import WriteError, cannot_write


def test_full_disk_fails_before_training(tmp_path, monkeypatch):
    assert folder.disk_space_warning(tmp_path, 0, 0) == ""
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage._replace(free=1499))
    said = folder.disk_space_warning(tmp_path, 1000, 2000)
    assert said.endswith("1.5 kB free, but this run needs about 8.0 kB for checkpoints and model")
    done = ok(*train(small.file(tmp_path), tmp_path / "run"))
    assert "warning: the disk of" in done.err


def test_memory_and_disk_are_explained_with_what_is_kept(tmp_path):
    with (
        pytest.raises(UserError) as error,
        folder.explain_failures(tmp_path, "training", "Use less."),
    ):
        raise MemoryError
    assert str(error.value) == (
        "Out of memory while training. Use less. There is no checkpoint yet: change that, then "
        "train again."
    )
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "last.safetensors").touch()
    with pytest.raises(WriteError) as full, folder.explain_failures(tmp_path, "training", ""):
        raise cannot_write("x", "No space left on device")
    assert f"intact: make room, then `weft train -o {tmp_path} --resume`." in str(full.value)
    with pytest.raises(ZeroDivisionError), folder.explain_failures(tmp_path, "training", ""):
        _ = 1 / 0

    class Trial:
        folder = tmp_path

    _write_error(Trial(), full.value)  # type: ignore[arg-type]
    assert (tmp_path / ERROR).read_text() == "Cannot write x: No space left on device.\n"
