"""The `natgrad` command."""
