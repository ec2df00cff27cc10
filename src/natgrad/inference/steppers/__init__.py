"""One step of each method: a state and the number of the step in, a new state and what happened out."""
