"""Compiled inner loops on plain arrays; each has a slow twin in `tests/reference`."""
