"""Attributions for every architecture, and measures of their faithfulness."""

from weft.explain.explanation import Explanation, WordWeight
from weft.explain.faithfulness import Faithfulness, faithfulness
from weft.explain.method import explain, methods

__all__ = ["Explanation", "Faithfulness", "WordWeight", "explain", "faithfulness", "methods"]
