"""Nodes of decoders and language models: a first state, and one step."""
