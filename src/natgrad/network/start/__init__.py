"""Where a declared network starts, and in which order its nodes are updated."""
