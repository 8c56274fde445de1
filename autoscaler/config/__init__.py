"""The policy file and what reads it: documents, names, the settings by which a node registers."""
