"""Sizes and a seed in; data like those of a field, and the truth that made them, out."""
