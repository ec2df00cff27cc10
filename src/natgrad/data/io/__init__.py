"""Files in, containers or chunks of them out: one module for each format, and reading a file whole is reading all its chunks."""
