"""Share a model: push its folder to the Hugging Face Hub, or to a local folder laid out like it."""

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft import jsonio, registry
from weft.convert.locate import HUB_PREFIX
from weft.errors import UserError
from weft.predict.golden import GOLDEN
from weft.predict.members import MEMBERS
from weft.predict.model_card import CARD, render_card_of, without_golden
from weft.predict.predictor import model_folder
from weft.storage import atomic_write_folder

FOLDER_PREFIX = "file:"
# What Weft writes into a model folder, beside weights; nothing else is ever pushed.
MODEL_FILES = {
    *(CARD, "model.json", "labels.json", "record.json", GOLDEN, "tokenizer.json", "cuts.json"),
    *("vocabulary.json", "columns.json", "interpolation.json"),
}
WEIGHTS = re.compile(r"(weights|feature-\d+|tags-\d+)\.safetensors")
PARSER = "parser"  # the folder of the parser of a model that reads trees
ATTRIBUTES = "*.safetensors filter=lfs diff=lfs merge=lfs -text\n"
REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
FORBIDDEN, UNAUTHORISED = 403, 401  # HTTP


@dataclass(frozen=True)
class Push:
    """The files of a push with their sizes in bytes, and what was left out."""

    target: str  # the address of the repository, or the folder
    files: dict[str, int]  # by name
    left_out: tuple[str, ...]  # files that Weft did not write
    notes: tuple[str, ...]
    done: bool  # False after a dry run

    @property
    def size(self) -> int:
        """The size of all files in bytes."""
        return sum(self.files.values())


@registry.check_types
def push(
    model: str | Path,
    target: str | Path,
    *,
    private: bool = False,
    revision: str = "",
    golden: bool = True,
    dry_run: bool = False,
) -> Push:
    """Push a model folder to `hf:ORGANISATION/NAME` on the Hub, or to a folder.

    Only files that Weft writes into a model folder are pushed: no checkpoints, no data, nothing
    else that lies there. golden.jsonl holds a few texts of the data; with `golden=False` they stay
    here, and the model cannot be verified when it is loaded. A repository that does not exist is
    created, `private` or public; `revision` is a branch. The token is that of `hf auth login` or
    HF_TOKEN. With `dry_run` nothing is written or sent.

    Examples:
        >>> weft.push("runs/cnn", "hf:my-org/reviews-cnn", private=True, dry_run=True).files
        {'README.md': 3120, 'golden.jsonl': 684, 'labels.json': 42, …}
        >>> weft.push("runs/cnn", "/mnt/models/reviews-cnn")
    """
    folder = model_folder(Path(model))
    repository, path = parse_target(str(target))
    contents, left_out = collect_files(folder, golden)
    files = {name: len(one) if isinstance(one, bytes) else one.stat().st_size
             for name, one in contents.items()}  # fmt: skip
    notes = tuple(_privacy_notes(contents))
    if path is not None:
        _check_folder(path, folder, private, revision)
        if not dry_run:
            _write_folder(path, contents)
        return Push(str(path), files, left_out, notes, not dry_run)
    address = f"https://huggingface.co/{repository}"
    if not dry_run:
        address = _upload(repository, contents, private, revision)
    return Push(address, files, left_out, notes, not dry_run)


def parse_target(target: str) -> tuple[str, Path | None]:
    """Return the name of a repository, or "" and a folder."""
    if target.startswith(HUB_PREFIX):
        name = target.removeprefix(HUB_PREFIX)
        if not REPOSITORY.fullmatch(name):
            raise UserError(
                f"'{target}' names no repository: write {HUB_PREFIX}ORGANISATION/NAME, or your "
                "user name in place of the organisation."
            )
        return name, None
    path = target.removeprefix(FOLDER_PREFIX)
    if not path:
        raise UserError(f"'{target}' names no folder.")
    explicit = target != path or target.startswith((".", "/", "~")) or os.path.isabs(target)
    if not explicit and not Path(target).is_dir():
        raise UserError(
            f"'{target}' may be a repository or a folder. Write {HUB_PREFIX}{target} for the Hub, "
            f"{FOLDER_PREFIX}{target} for a folder."
        )
    return "", Path(path).expanduser()


def collect_files(
    folder: Path, golden: bool = True
) -> tuple[dict[str, Path | bytes], tuple[str, ...]]:
    """Return the files of a model folder by name, and the names of those that are left out.

    Without `golden`, the recorded texts are removed from what is returned.
    """
    contents: dict[str, Path | bytes] = {}
    for part in _model_parts(folder):
        prefix = "" if part == folder else f"{part.relative_to(folder).as_posix()}/"
        for path in sorted(part.iterdir()):
            known = path.name in MODEL_FILES or WEIGHTS.fullmatch(path.name)
            if known and path.is_file():
                _check_inside(path, folder)
                contents[prefix + path.name] = path
        contents |= {prefix + name: text for name, text in _rewritten(part, golden).items()}
    present = sorted(path for path in folder.rglob("*") if path.is_file())
    left_out = (path.relative_to(folder).as_posix() for path in present)
    return dict(sorted(contents.items())), tuple(n for n in left_out if n not in contents)


def _model_parts(folder: Path) -> Iterator[Path]:
    """Yield a model folder and those of its members and its parser."""
    yield folder
    for one in (*sorted((folder / MEMBERS).glob("*")), folder / PARSER):
        if (one / "model.json").is_file():
            yield from _model_parts(one)


def _rewritten(folder: Path, golden: bool) -> dict[str, bytes]:
    """Return the files that differ from those on disk: a missing card, and golden texts."""
    path = folder / CARD
    card = path.read_text("utf-8") if path.is_file() else render_card_of(folder)
    if golden:
        return {} if path.is_file() else {CARD: card.encode()}
    about = {**jsonio.read(folder / "model.json"), "golden": 0}
    text = json.dumps(about, ensure_ascii=False, indent=1) + "\n"
    return {"model.json": text.encode(), GOLDEN: b"", CARD: without_golden(card).encode()}


def _check_inside(path: Path, folder: Path) -> None:
    if not path.resolve().is_relative_to(folder.resolve()):
        raise UserError(f"{path} is a link to a file outside the model folder. Copy it there.")


def _privacy_notes(contents: dict[str, Path | bytes]) -> Iterator[str]:
    """Yield notes on what the files tell about the training data."""
    recorded = contents.get(GOLDEN, b"")
    count = 0 if isinstance(recorded, bytes) else len(jsonio.read_lines(recorded))
    if count:
        yield (
            f"{GOLDEN} holds {count} texts of the dev or training data with their answers; "
            "--no-golden leaves them out"
        )
    about = contents["model.json"]
    saved = jsonio.parse(about if isinstance(about, bytes) else about.read_bytes(), "model.json")
    data = saved.get("config", {}).get("data", {})
    paths = [one for one in (data.get(name) for name in ("train", "dev", "test")) if one]
    if paths := [one for one in paths if os.path.isabs(one)]:
        yield f"model.json names {', '.join(paths)}"


def _check_folder(target: Path, model: Path, private: bool, revision: str) -> None:
    if private or revision:
        option = "--private" if private else "--revision"
        raise UserError(f"{option} is for the Hub, and {target} is a folder. Leave it out.")
    here, there = model.resolve(), target.resolve()
    if there == here or there.is_relative_to(here) or here.is_relative_to(there):
        raise UserError(f"{target} and the model folder {model} overlap. Choose another folder.")
    if target.exists() and not target.is_dir():
        raise UserError(f"{target} is a file. Give a folder.")
    if target.is_dir() and any(target.iterdir()) and not (target / "model.json").is_file():
        raise UserError(f"{target} is not empty and holds no model. Give an empty folder.")


def _write_folder(target: Path, contents: dict[str, Path | bytes]) -> None:
    """Write the files, and remove those of an earlier model that are no longer there."""
    stale = collect_files(target)[0].keys() - contents.keys() if target.is_dir() and (
        target / "model.json"
    ).is_file() else set()  # fmt: skip
    with atomic_write_folder(target) as part:
        (part / ".gitattributes").write_text(ATTRIBUTES, "utf-8")
        for name, one in contents.items():
            place = part / name
            place.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(one, bytes):
                place.write_bytes(one)
            else:
                shutil.copyfile(one, place)
    for name in stale:
        (target / name).unlink()


def _upload(
    repository: str, contents: dict[str, Path | bytes], private: bool, revision: str
) -> str:
    """Create the repository unless it exists, and commit all files at once; return its address."""
    try:
        from huggingface_hub import CommitOperationAdd, HfApi
        from huggingface_hub.errors import RepositoryNotFoundError
    except ImportError:
        raise UserError(
            "Pushing to the Hub needs huggingface_hub: pip install 'weft[hub]'."
        ) from None
    api: Any = HfApi(library_name="weft")
    with _hub_errors(repository):
        try:
            public = not api.repo_info(repository).private
        except RepositoryNotFoundError:
            api.create_repo(repository, private=private, exist_ok=True)
            public = not private
        if private and public:
            raise UserError(
                f"{repository} exists and is public, so --private would not hide the model. Change "
                "its visibility on the Hub, or choose another name."
            )
        if revision:
            api.create_branch(repository, branch=revision, exist_ok=True)
        operations = [CommitOperationAdd(name, one) for name, one in contents.items()]
        commit = api.create_commit(
            repository,
            operations,
            commit_message="Upload a model of Weft",
            revision=revision or None,
        )
    return str(commit.repo_url)


@contextlib.contextmanager
def _hub_errors(repository: str) -> Iterator[None]:
    """Turn errors of the Hub and of the network into one line."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        package = type(error).__module__.partition(".")[0]
        if package not in ("huggingface_hub", "httpx", "httpx2", "requests") and not isinstance(
            error, (OSError, ValueError)
        ):
            raise
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status in (UNAUTHORISED, FORBIDDEN):
            raise UserError(
                f"The Hub does not let you write to {repository} (HTTP {status}). Log in with "
                "`hf auth login`, or set HF_TOKEN to a token that may write there."
            ) from None
        reason = " ".join(str(error).split())[:300]
        raise UserError(
            f"Pushing to {repository} failed: {reason or type(error).__name__}"
        ) from None
