"""The autoscaler's image: its Dockerfile."""
