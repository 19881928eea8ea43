"""SWIM: a membership without a coordinator, whose load on each peer does not grow with the number of peers."""
