"""How many tasks each elastic job should have: a function of plain values."""
