"""Who may take a role. Imports no Pulumi."""

from __future__ import annotations

from typing import Any


def trust_of(service: str) -> dict[str, Any]:
    """Trust in one service of AWS, by its name: ``ec2.amazonaws.com`` is an instance with the role's profile."""
    statement = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": service}}
    return {"Version": "2012-10-17", "Statement": [statement]}


def trust_of_service_account(*, provider_arn: str, issuer: str, namespace: str, account: str) -> dict[str, Any]:
    """Trust in one ServiceAccount of an EKS cluster, by the cluster's issuer, and in no other of it."""
    name = issuer.removeprefix("https://")
    wanted = {f"{name}:aud": "sts.amazonaws.com", f"{name}:sub": f"system:serviceaccount:{namespace}:{account}"}
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": "sts:AssumeRoleWithWebIdentity",
                "Principal": {"Federated": provider_arn},
                "Condition": {"StringEquals": wanted},
            }
        ],
    }
