"""Purchases as a cutting-stock problem: machines are cut into fillings of pods, for all pods of a look at once."""
