"""The run folder: checks before a run, and recovery hints after a failure."""

import contextlib
import errno
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from weft.errors import OutOfMemory, UserError, is_out_of_memory, out_of_memory_message
from weft.predict.members import MEMBERS
from weft.storage import LOCK_FILE, WriteError, cannot_write, remove_leftovers
from weft.train.trackers import IDS_FILE

TOKENS = "tokens"  # folder of what several processes tokenise together, until all have read it
DISK_FULL_ERRORS = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
}  # disk or quota full
RUN_FILES = {
    "config.toml",
    "metrics.jsonl",
    "log.txt",
    "checkpoints",
    "model",
    "predictions.jsonl",
    "health.json",
    "progress.json",
    "tensorboard",
    "wandb",
    TOKENS,
    IDS_FILE,
    MEMBERS,
}


def check_writable(folder: Path, resume: bool, overwrite: bool) -> None:
    """Raise UserError if training would destroy something in the folder."""
    present = _contents(folder)
    if not present or resume:
        return
    if not overwrite and not _is_failed_run(folder, present):
        raise UserError(
            f"{folder} is not empty. Pass --overwrite to replace the run in it, --resume "
            "to go on with it, or choose another folder."
        )
    if "config.toml" not in present:
        raise UserError(f"{folder} holds no run of Weft, so --overwrite leaves it alone.")


def clear_folder(folder: Path, resume: bool) -> None:
    """Remove the run that is replaced, if any, and leftovers of killed processes."""
    try:
        remove_leftovers(folder)
        for name in _contents(folder) & RUN_FILES if not resume else ():
            path = folder / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    except OSError as error:
        raise UserError(f"Cannot write to {folder}: {error.strerror or error}.") from None


def _contents(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {LOCK_FILE}


def _is_failed_run(folder: Path, present: set[str]) -> bool:
    """Return True if the folder was left by a run that ended before it trained."""
    kept = {name for name in present if not name.endswith(".part")}
    learned = any((folder / "checkpoints").glob("*.safetensors")) or (folder / MEMBERS).is_dir()
    ours = "config.toml" in kept and kept <= RUN_FILES - {"model"}
    return not kept or (ours and not learned)


def last_checkpoint(folder: Path) -> Path | None:
    """Return the checkpoint that a resumed run would start from; of an ensemble, the newest."""
    name = Path("checkpoints") / "last.safetensors"
    paths = [folder / name, *(folder / MEMBERS).glob(f"*/{name}")]
    return max(
        (path for path in paths if path.is_file()), key=lambda p: p.stat().st_mtime, default=None
    )


def resume_command(folder: Path) -> str:
    """Return the command that resumes a run."""
    return f"weft train -o {shlex.quote(str(folder))} --resume"


def resume_hint(folder: Path, device: str = "auto") -> str:
    """Return what a stopped run has saved, and the command that resumes it."""
    kept = last_checkpoint(folder)
    if kept is None:
        return f"no checkpoint was written yet: train again{_overwrite_hint(folder)}"
    more = "" if device == "auto" else f" --device {device}"
    return f"the last checkpoint is {kept}; `{resume_command(folder)}{more}` goes on"


@contextlib.contextmanager
def explain_failures(folder: Path, doing: str, advice: str) -> Iterator[None]:
    """Turn a full disk or exhausted memory into one line: what is saved, and what helps."""
    try:
        yield
    except WriteError as error:
        raise WriteError(f"{error} {_recovery_hint(folder, 'make room')}") from error
    except Exception as error:
        if isinstance(error, OSError) and error.errno in DISK_FULL_ERRORS:
            places = f"{folder}, {tempfile.gettempdir()} or the cache of a compiler"
            failed = cannot_write(f"a temporary file (in {places})", error.strerror or str(error))
            raise WriteError(f"{failed} {_recovery_hint(folder, 'make room')}") from error
        if isinstance(error, UserError) or not is_out_of_memory(error):
            raise
        message = out_of_memory_message(error, doing)
        raise OutOfMemory(f"{message} {advice} {_recovery_hint(folder, 'change that')}") from error


def _recovery_hint(folder: Path, first: str) -> str:
    """Return what a failed run has saved, and how to continue."""
    if last_checkpoint(folder):
        return f"The last checkpoint is intact: {first}, then `{resume_command(folder)}`."
    return f"There is no checkpoint yet: {first}, then train again{_overwrite_hint(folder)}."


def _overwrite_hint(folder: Path) -> str:
    """Return the option needed to train in the folder again, or ""."""
    free = not folder.is_dir() or _is_failed_run(folder, _contents(folder))
    return "" if free else " with --overwrite"


def disk_space_warning(folder: Path, weights: int, state: int) -> str:
    """Return a warning if the disk has too little space for a run, else ""; sizes in bytes.

    At its largest a run holds the last checkpoint twice (the old one stays until the new one is
    whole), the best weights, and the model.
    """
    needed = 2 * (weights + state) + 2 * weights
    free = shutil.disk_usage(folder).free
    if free >= needed:
        return ""
    return (
        f"the disk of {folder} has {_format_bytes(free)} free, but this run needs about "
        f"{_format_bytes(needed)} for checkpoints and model"
    )


def _format_bytes(count: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
