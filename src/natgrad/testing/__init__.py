"""Slow and obvious twins of the compiled kernels, for tests only."""
