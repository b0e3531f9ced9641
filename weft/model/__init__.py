"""A model = embed ∘ encode ∘ pool ∘ head: one class per composition, and their construction.

Names are imported when they are used: an exported model has traits, but no torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.model.build import build_model as build_model
    from weft.model.build import fill as fill
    from weft.model.compositions import UNKNOWN_ID as UNKNOWN_ID
    from weft.model.compositions import BiEncoderModel as BiEncoderModel
    from weft.model.compositions import EncoderDecoderModel as EncoderDecoderModel
    from weft.model.compositions import EncoderModel as EncoderModel
    from weft.model.compositions import JointPairModel as JointPairModel
    from weft.model.compositions import LanguageModel as LanguageModel
    from weft.model.compositions import MaskedLanguageModel as MaskedLanguageModel
    from weft.model.compositions import Model as Model
    from weft.model.compositions import ModelOutput as ModelOutput
    from weft.model.compositions import TextModel as TextModel
    from weft.model.traits import Traits as Traits

_HOMES = {
    "build_model": "build",
    "fill": "build",
    "UNKNOWN_ID": "compositions",
    "BiEncoderModel": "compositions",
    "EncoderDecoderModel": "compositions",
    "EncoderModel": "compositions",
    "JointPairModel": "compositions",
    "LanguageModel": "compositions",
    "MaskedLanguageModel": "compositions",
    "Model": "compositions",
    "ModelOutput": "compositions",
    "TextModel": "compositions",
    "Traits": "traits",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'weft.model' has no attribute '{name}'")
    return getattr(importlib.import_module(f"weft.model.{_HOMES[name]}"), name)
