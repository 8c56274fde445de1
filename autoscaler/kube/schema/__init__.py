"""Kubernetes objects as decoded from JSON, and their conversion to and from the model."""
