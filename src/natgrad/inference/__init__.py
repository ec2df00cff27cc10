"""The engine: methods, step sizes, starts, the loop, the trace. Knows problems, never models."""
