"""A task: the model, its data and its loss, and what peers exchange of its model."""
