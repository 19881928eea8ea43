"""The processes of a run: they train, serve, launch, checkpoint and report."""
