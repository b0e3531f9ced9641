"""Tasks about the meaning of sentences."""
