"""Equations of the lectures, written out and compared with the parts that compute them."""
