"""Model files and checkpoints: values in, one file out, and back; nothing is executed."""
