"""The rolling change: a state machine over the fleet, its journal, gate, lock and report."""
