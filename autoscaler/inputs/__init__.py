"""Pods, nodes and prices from files, CSV tables or Kubernetes Lists, and the plan made of them."""
