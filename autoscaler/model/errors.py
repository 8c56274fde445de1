"""The two ways to fail that a person can do something about. Named by what the reader does next."""

from __future__ import annotations


class BadInput(Exception):  # noqa: N818 - reads as what it is at the raise site
    """Something the user wrote is wrong: the message says where, what, and what would be right. Exit status 2."""


class Unavailable(Exception):  # noqa: N818 - as above
    """A party outside this process does not answer, or refuses: the message says which, and what to try. Status 1."""
