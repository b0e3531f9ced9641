"""Answers from an exported model: NumPy, tokenizers and onnxruntime, no torch."""
