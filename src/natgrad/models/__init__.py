"""What users fit: a declared network (and, in time, the ready models)."""
