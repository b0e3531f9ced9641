"""Full disks, permissions of what is written, and two processes in one folder."""

import json
import re
import stat
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from tests.fixtures.command import command, fails, ok, says, train
from tests.fixtures.file_system import largest_file, umask
from weft.storage import lock_folder

# Trainings in which different files are the largest, and what then no longer fits.
LARGEST = {
    "checkpoint": ((), {"config.toml", "checkpoints/last.safetensors"}),
    "metrics": (
        (
            "--set",
            "train.evaluate_every=1",
            "--set",
            "train.patience=0",
            "--set",
            "train.epochs=11",
        ),
        {"metrics.jsonl"},
    ),
    "predictions": (("--test", "long.tsv"), {"predictions.jsonl"}),
}


def whole(folder: Path) -> None:
    """Every file under a final name can be read to its end, and no temporary one is left."""
    for path in filter(Path.is_file, folder.rglob("*")):
        assert not path.name.endswith(".part"), path
        if path.suffix == ".json":
            json.loads(path.read_text())
        if path.suffix == ".jsonl":
            for line in path.read_text().splitlines():
                json.loads(line)
        if path.suffix == ".safetensors":
            load_file(path)


@pytest.mark.parametrize("case", LARGEST)
def test_a_disk_that_is_full_at_any_moment(case, shared, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = [f"good\t{'long ' * 300}text {i}\nbad\t{'long ' * 50}one {i}\n" for i in range(6)]
    Path("long.tsv").write_text(
        "".join(texts).replace("good", "positive").replace("bad", "negative")
    )
    more, expected = LARGEST[case]
    small = ("--set", "embedder.width=3", "--set", "train.save_every=4", "--quiet", *more)
    arguments = lambda out: train(shared / "train.tsv", out, *small)  # noqa: E731
    ok(*arguments("whole"))
    weights = Path("whole/model/weights.safetensors").read_bytes()
    sizes = {p.stat().st_size for p in Path("whole").rglob("*") if p.is_file()}
    refused = set()
    limits = sorted(size - 1 for size in sizes if size > 50)
    for limit in limits if case == "checkpoint" else limits[-1:]:
        out = Path(f"run-{limit}")
        with largest_file(limit):
            done = command(*arguments(out))
        assert done.status == 2, (limit, done)
        assert done.err.count("\n") == 1, done.err
        found = re.match(rf"error: Cannot write {out}/(\S+): File too large\.", done.err)
        assert found, done.err
        refused.add(found[1])
        whole(out)
        kept = out / "checkpoints" / "last.safetensors"
        assert (f"`weft train -o {out} --resume`" in done.err) == kept.is_file(), done.err
        assert ("no checkpoint yet" in done.err) != kept.is_file(), done.err
        again = arguments(out) + (("--overwrite",) if "--overwrite" in done.err else ())
        ok(*(("train", "-o", out, "--resume", "--quiet") if kept.is_file() else again))
        assert (out / "model/weights.safetensors").read_bytes() == weights
        whole(out)
    assert expected <= refused, refused


def test_a_classic_model_is_saved_whole_or_not_at_all(shared, tmp_path):
    arguments = ("train", "--recipe", "tfidf", "--train", shared / "train.tsv")
    arguments = (*arguments, "-o", tmp_path / "r")
    with largest_file(1499):
        message = fails(*arguments, "--quiet")
    says(message, f"Cannot write {tmp_path}/r/", "File too large")
    assert not (tmp_path / "r/model").exists()
    whole(tmp_path / "r")
    ok(*arguments, "--quiet")


def test_other_verbs_name_the_file_they_cannot_write(shared, tmp_path):
    model, data = shared / "bag", shared / "train.tsv"
    vectors = tmp_path / "v.txt"
    vectors.write_text("2 3\none 1 2 3\ntwo 4 5 6\n")
    cases = [
        (("evaluate", model, data, "--predictions", tmp_path / "p.jsonl"), "p.jsonl"),
        (("vectors", "convert", vectors, tmp_path / "v.safetensors"), "v.safetensors"),
        (("vectors", "convert", vectors, tmp_path / "v.npz"), "v.npz"),
        (("check", data, "--html", tmp_path / "c.html"), "c.html"),
    ]
    before = sorted(tmp_path.iterdir())
    for arguments, name in cases:
        with largest_file(97):
            message = fails(*arguments)
        says(message, f"Cannot write {tmp_path / name}: File too large")
        assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(("mask", "file", "folder"), [(0o22, 0o644, 0o755), (0o27, 0o640, 0o750)])
@pytest.mark.parametrize("recipe", ["bag", "tfidf"])
def test_a_run_honours_the_umask(recipe, mask, file, folder, shared, tmp_path):
    arguments = ("--set", "train.epochs=1") if recipe == "bag" else ()
    data, out = shared / "train.tsv", tmp_path / "run"
    with umask(mask):
        ok("train", "--recipe", recipe, "--train", data, "-o", out, "--quiet", *arguments)
    wrong = {
        str(path): oct(stat.S_IMODE(path.stat().st_mode))
        for path in out.rglob("*")
        if stat.S_IMODE(path.stat().st_mode) != (folder if path.is_dir() else file)
    }
    assert not wrong


def test_one_process_at_a_time_trains_in_a_folder(shared, tmp_path):
    data, out = shared / "train.tsv", tmp_path / "run"
    ok(*train(data, out))
    before = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    with lock_folder(out):
        for more in ((), ("--overwrite",), ("--resume",)):
            says(fails(*train(data, out, *more)), "process", f"is training in {out}; wait for it")
    assert before == {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    with lock_folder(tmp_path / "compared", "comparing"):
        message = fails("compare", data, "-o", tmp_path / "compared", "--recipes", "tfidf")
    says(message, "is comparing in", "wait for it")


def test_partial_files_of_a_killed_process_are_removed(shared, tmp_path):
    data, out = shared / "train.tsv", tmp_path / "run"
    ok(*train(data, out))
    (out / "checkpoints" / ".last.safetensors.123.part").write_bytes(b"half")
    ok(*train(data, out, "--resume"))
    whole(out)


def test_comparison_on_a_full_disk_reports_what_is_kept(shared, tmp_path):
    data, out = shared / "train.tsv", tmp_path / "compared"
    arguments = ("compare", data, "-o", out, "--recipes", "tfidf", "--seeds", "1")
    with largest_file(11_003):  # the page is larger
        message = fails(*arguments)
    says(message, f"Cannot write {out}/report.html: File too large", "Finished runs are kept")
    says(message, "make room, then `weft compare", f"-o {out}")
    whole(out)
    assert "cached" in ok(*arguments).err
