"""The conversation of a parameter server: servers hold the model's vector, and workers push changes to it and pull
it."""
