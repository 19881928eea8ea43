"""For each conversation, its declaration for simulations: its promises, its rare places, and the settings that a sweep
draws."""
