"""Vectors -> vectors in context, and from there to one vector a text."""
