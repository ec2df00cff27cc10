"""What each model shows on its page."""
