"""Who may take a role. Imports no Pulumi."""

from __future__ import annotations

from typing import Any


def trust_of(service: str) -> dict[str, Any]:
    """Trust in one service of AWS, by its name: ``ec2.amazonaws.com`` is an instance with the role's profile."""
    statement = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": service}}
    return {"Version": "2012-10-17", "Statement": [statement]}
