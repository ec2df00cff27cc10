"""Where the parts of a step are computed: in this process, or by the workers of a cluster."""
