"""Filters, one a file: each chooses the elements of a push that a worker of a parameter server keeps back."""
