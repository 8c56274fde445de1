"""The decision: a cluster, a policy and what was remembered come in, actions with reasons come out."""
