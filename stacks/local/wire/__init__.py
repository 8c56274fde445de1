"""AWS's wire protocols, and scripted faults in the answers."""
