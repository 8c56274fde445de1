"""The master linear program, and the lower bounds that its dual values prove."""
