"""Data to try models on: bundled with other packages, generated with the truth that made them, or downloaded."""
