"""Word vectors: word2vec, fastText and GloVe trained by compiled loops, and the store they fill."""
