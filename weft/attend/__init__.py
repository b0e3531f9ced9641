"""Which steps matter to which: scores, weights, summaries."""
