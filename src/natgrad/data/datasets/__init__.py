"""Data to try models on: generated with the truth that made them, or downloaded."""
