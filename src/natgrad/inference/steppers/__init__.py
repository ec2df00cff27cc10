"""Take one step of a method, from a state to the next."""
