"""Who says it: the processes that train, serve, launch, checkpoint and report."""
