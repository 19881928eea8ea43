"""The process and its machine: open files, memory, and PyTorch's late imports."""
