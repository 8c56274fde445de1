"""Requests that AWS would refuse, refused by the stand-in in the same words."""
