"""Attention: scores, weights and the blocks built on them."""
