"""Memory that peers on one machine share, and sums in place of sending. Only `segment` knows how it is had."""
