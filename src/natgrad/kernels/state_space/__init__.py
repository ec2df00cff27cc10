"""Paths of real vectors: block-tridiagonal precisions, forwards and backwards."""
