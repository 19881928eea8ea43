"""Pure mathematics on flat vectors: values in, values out, without async, IO, clock or randomness."""
