"""Recordings -> vectors: WAV files and their log-mel spectra."""
