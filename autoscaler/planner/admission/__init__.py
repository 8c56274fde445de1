"""Which gangs are served: their order, which wait for machines of ours, which limits leave room for."""
