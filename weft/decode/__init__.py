"""Vectors -> the scores of answers."""
