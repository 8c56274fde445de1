"""Sizes of elastic jobs."""
