"""Ids, bytes and n-grams of tokens -> vectors."""
