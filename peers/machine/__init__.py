"""The machine a process runs on: its open files, its memory, and what PyTorch imports late."""
