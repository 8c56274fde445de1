"""Columns worth adding at given dual values: fillings of a node, found by knapsack and table."""
