"""What is computed: pure mathematics on flat vectors. Values in, values out; no async, IO, clock or randomness."""
