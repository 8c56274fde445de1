"""Policies that ship with the autoscaler: examples to start from, and the local ground's."""
