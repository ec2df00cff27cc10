"""Write and read model files and checkpoints; nothing is executed."""
