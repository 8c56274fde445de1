"""Which gangs are served: their order, who waits instead of buying, who is filled in afterwards."""
