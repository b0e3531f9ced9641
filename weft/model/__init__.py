"""A model = embed ∘ encode ∘ pool ∘ head: one class per composition, and their construction."""

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
from weft.model.compositions import Traits as Traits
