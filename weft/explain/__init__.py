"""Why did it say that? Word weights for every architecture, and how far to trust them."""

from weft.explain.explanation import Explanation, Word
from weft.explain.faithfulness import Faithfulness, faithfulness
from weft.explain.method import explain, methods

__all__ = ["Explanation", "Faithfulness", "Word", "explain", "faithfulness", "methods"]
