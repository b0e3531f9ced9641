"""Searches for text: over tensors with torch, over arrays without."""
