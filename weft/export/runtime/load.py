"""Load an exported model as a Predictor."""

from pathlib import Path

from weft import registry
from weft.errors import UserError
from weft.export.runtime.engine import OnnxEngine
from weft.export.runtime.metadata import EXPORT_FILE, check_source, is_export, read_info
from weft.predict.golden import GOLDEN, replay_golden
from weft.predict.predictor import Predictor, load_classic, load_space, naming_errors
from weft.predict.rows import PARSER_FOLDER
from weft.protocols import Engine
from weft.tasks.task import build_task


def _export_json(folder: str | Path) -> registry.Source:
    """Return a function that names the file of a model's parts."""
    return lambda name: str(Path(folder) / EXPORT_FILE)


@registry.with_trust(_export_json, saved=True)
def load_export(folder: str | Path, *, replay: bool = True, weights: str = "float32") -> Predictor:
    """Read an exported model, and check that it still answers as it did when it was written."""
    folder = Path(folder)
    if weights != "float32":
        raise UserError(
            f"{folder}: an exported model has the weights it was exported with. Omit weights, or "
            "export the model again with --int8."
        )
    with naming_errors(folder / EXPORT_FILE):
        info = read_info(folder / EXPORT_FILE)
        task = build_task(info.config)
    if replay:
        check_source(folder, info.source)
    with naming_errors(folder / "labels.json"):
        space = load_space(task, folder / "labels.json")
    with naming_errors(folder):
        engine: Engine
        if "classic" in info.config:
            engine = load_classic(folder, info.config, space)
        else:
            parser = folder / PARSER_FOLDER
            kind = OnnxEngine
            if info.reads is not None and (info.reads.is_lm or info.reads.is_mlm):
                from weft.export.runtime.language import OnnxLanguageEngine

                kind = OnnxLanguageEngine
            engine = kind.load(
                folder, info, space, load_export(parser) if is_export(parser) else None
            )
    predictor = Predictor(engine, task, space, info.config)
    if replay:
        with naming_errors(folder / GOLDEN):
            replay_golden(predictor, folder / GOLDEN, info.golden)
    return predictor
