"""What a worker of a parameter server keeps back of a push, one filter a file."""
