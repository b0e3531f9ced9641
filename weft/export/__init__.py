"""Trained models for elsewhere: graphs of ONNX nodes, and a runtime that needs no torch."""
