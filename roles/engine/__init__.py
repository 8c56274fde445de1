"""How machines are looked at and changed: facts in one batch, plans of a host, the fleet at once."""
