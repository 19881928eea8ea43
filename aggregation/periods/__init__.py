"""Period policies, one file each: how many local steps a peer takes until the next average."""
