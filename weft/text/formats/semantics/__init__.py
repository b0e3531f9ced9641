"""Readers of annotations of meaning: semantic roles, coreference, extracted tuples."""
