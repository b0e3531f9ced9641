"""Heads that read a document as a whole."""
