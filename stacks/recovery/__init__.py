"""Mends a stack whose update was killed: finds what AWS has and the state does not know."""
