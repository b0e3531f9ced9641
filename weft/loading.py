"""Load a model to predict with: a model folder, or a checkpoint in the Hugging Face layout."""

from collections.abc import Sequence
from pathlib import Path

from weft import predict, registry
from weft.convert.locate import PACKAGES, locate
from weft.predict import Predictor


@registry.check_types
def load(
    folder: str | Path,
    *,
    device: str = "auto",
    replay: bool = True,
    weights: str = "float32",
    trust: str | Sequence[str] = (),
) -> Predictor:
    """Load a model folder, a Hugging Face checkpoint folder, or the installed `minilm`.

    A model folder is checked first: it must answer as it did when it was saved (`replay`). With
    `weights="int8"` a pre-trained encoder runs with quantised weights on a CPU, faster and less
    exactly. Parts from outside Weft are imported only from packages in `trust`.
    """
    path = Path(folder)
    if not (_is_checkpoint(path) or (str(folder) in PACKAGES and not path.exists())):
        return predict.load(folder, device=device, replay=replay, weights=weights, trust=trust)
    from weft.convert.checkpoint import Checkpoint
    from weft.predict.neural import NeuralEngine
    from weft.run.convert import predictor_of

    predictor, _ = predictor_of(Checkpoint(locate(str(folder)), ""), device)
    assert isinstance(predictor.engine, NeuralEngine)
    predictor.engine.quantise_weights(weights, str(folder))
    return predictor


def _is_checkpoint(folder: Path) -> bool:
    """Return True for a folder with a config.json that is no model or run folder of Weft."""
    models = (folder / "model.json", folder / "model" / "model.json")
    return (folder / "config.json").is_file() and not any(path.is_file() for path in models)
