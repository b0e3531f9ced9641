"""Load a model folder or a Hugging Face checkpoint, to predict with or for its token vectors."""

from collections.abc import Sequence
from pathlib import Path

from weft import predict, registry
from weft.convert.locate import HUB_PREFIX, PACKAGES, locate
from weft.embed.vector_files.table import Duplicates
from weft.export.runtime.metadata import is_export
from weft.predict import Predictor
from weft.vectors.store import Vectors


@registry.check_types
def load(
    folder: str | Path,
    *,
    device: str = "auto",
    replay: bool = True,
    weights: str = "float32",
    trust: str | Sequence[str] = (),
) -> Predictor:
    """Load a model folder, an export, a Hugging Face checkpoint folder, or the installed `minilm`.

    `hf:ORGANISATION/NAME[@REVISION]` is downloaded from the Hub once, then found without a network.

    A model folder is checked first: it must answer as it did when it was saved (`replay`). With
    `weights="int8"` a pre-trained encoder runs with quantised weights on a CPU, faster and less
    exactly. Parts from outside Weft are imported only from packages in `trust`.

    The predictor is called with a list of texts and returns an Answer for each: its `value`, its
    `score`, and how much of the text was read (`coverage`).

    Examples:
        >>> model = weft.load("runs/cnn")
        >>> model(["a fine film", "dull and long"])
        [Answer('positive', score=0.98), Answer('negative', score=0.91)]
    """
    if str(folder).startswith(HUB_PREFIX):
        folder = locate(str(folder))
    path = Path(folder)
    if is_export(path):
        from weft.export.runtime.load import load_export

        return load_export(path, replay=replay, weights=weights)
    if not (_is_checkpoint(path) or (str(folder) in PACKAGES and not path.exists())):
        return predict.load(folder, device=device, replay=replay, weights=weights, trust=trust)
    from weft.convert.checkpoint import Checkpoint
    from weft.predict.neural import NeuralEngine
    from weft.run.convert import predictor_of

    predictor, _ = predictor_of(Checkpoint(locate(str(folder)), ""), device)
    assert isinstance(predictor.engine, NeuralEngine)
    predictor.engine.quantise_weights(weights, str(folder))
    return predictor


@registry.check_types
def load_vectors(
    path: str | Path, *, duplicates: Duplicates = "error", trust: str | Sequence[str] = ()
) -> Vectors:
    """Open a file of word vectors, or the embedding table of a model folder or checkpoint.

    The words of a model are its tokens: a piece inside a word begins with "##".
    """
    if not Path(path).is_dir() and str(path) not in PACKAGES:
        return Vectors.load(path, duplicates=duplicates)
    words, matrix = load(path, device="cpu", replay=False, trust=trust).engine.token_vectors()
    found = Vectors(words, matrix, record={"model": str(path)})
    found.place = str(path)
    return found


def _is_checkpoint(folder: Path) -> bool:
    """Return True for a folder with a config.json that is no model or run folder of Weft."""
    models = (folder / "model.json", folder / "model" / "model.json")
    return (folder / "config.json").is_file() and not any(path.is_file() for path in models)
