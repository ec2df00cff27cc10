"""What the ready models are fed: ratings and their ids."""
