"""Training a task: local steps, and the loop around them."""
