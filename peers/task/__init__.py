"""A task: the model, its data and its loss, and the vector of the model that peers exchange."""
