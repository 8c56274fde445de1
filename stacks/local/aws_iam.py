"""Roles, their policies and instance profiles, as the stand-in for the aws plugin serves them."""

# ruff: noqa: ARG002 - every kind has the same methods, whatever it needs of what it is given
# ruff: noqa: D102 - they are documented once, in `Kind`
# ruff: noqa: S105 - a token is the name of a type here

from __future__ import annotations

import json
from typing import Final

from stacks.local.aws_kinds import Cloud, Kind, Properties, Tags, found, given, listed, tags_of


class Role(Kind):
    """An IAM role."""

    token = "aws:iam/role:Role"
    inputs = frozenset({"name", "path", "assumeRolePolicy", "description", "maxSessionDuration", "tags"})
    fixed = frozenset({"name", "path"})
    named = "name"

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        cloud.iam.create_role(
            RoleName=wanted["name"],
            AssumeRolePolicyDocument=wanted["assumeRolePolicy"],
            Tags=listed(tags),
            **given(wanted, path="Path", description="Description", maxSessionDuration="MaxSessionDuration"),
        )
        name: str = wanted["name"]
        return name

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        role = found(cloud.iam.get_role, "Role", RoleName=key)
        return role and {
            "name": role["RoleName"],
            "path": role["Path"],
            "arn": role["Arn"],
            "uniqueId": role["RoleId"],
            "assumeRolePolicy": json.dumps(role["AssumeRolePolicyDocument"]),
            "description": role.get("Description"),
            "maxSessionDuration": role.get("MaxSessionDuration"),
            **tags_of(role),
        }

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        if old.get("assumeRolePolicy") != new.get("assumeRolePolicy"):
            cloud.iam.update_assume_role_policy(RoleName=key, PolicyDocument=new["assumeRolePolicy"])
        cloud.iam.update_role(
            RoleName=key, **given(new, description="Description", maxSessionDuration="MaxSessionDuration")
        )

    def retag(self, cloud: Cloud, key: str, before: Tags, after: Tags) -> None:
        gone = [name for name in before if name not in after]
        if gone:
            cloud.iam.untag_role(RoleName=key, TagKeys=gone)
        if after:
            cloud.iam.tag_role(RoleName=key, Tags=listed(after))

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cloud.iam.delete_role(RoleName=key)


class RolePolicy(Kind):
    """What a role may do, written into the role itself."""

    token = "aws:iam/rolePolicy:RolePolicy"
    inputs = frozenset({"name", "role", "policy"})
    fixed = frozenset({"name", "role"})
    named = "name"
    tagged = False

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        self.update(cloud, "", {}, wanted)
        return f"{wanted['role']}:{wanted['name']}"

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        role, _, name = key.partition(":")
        document = found(cloud.iam.get_role_policy, "PolicyDocument", RoleName=role, PolicyName=name)
        return document and {"role": role, "name": name, "policy": json.dumps(document)}

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        cloud.iam.put_role_policy(RoleName=new["role"], PolicyName=new["name"], PolicyDocument=new["policy"])

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        role, _, name = key.partition(":")
        cloud.iam.delete_role_policy(RoleName=role, PolicyName=name)


class InstanceProfile(Kind):
    """What hands a role to instances."""

    token = "aws:iam/instanceProfile:InstanceProfile"
    inputs = frozenset({"name", "path", "role", "tags"})
    fixed = frozenset({"name", "path"})
    named = "name"

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        cloud.iam.create_instance_profile(
            InstanceProfileName=wanted["name"], Tags=listed(tags), **given(wanted, path="Path")
        )
        self.update(cloud, wanted["name"], {}, wanted)
        name: str = wanted["name"]
        return name

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        profile = found(cloud.iam.get_instance_profile, "InstanceProfile", InstanceProfileName=key)
        if profile is None:
            return None
        roles = [role["RoleName"] for role in profile["Roles"]]
        return {
            "name": key,
            "path": profile["Path"],
            "arn": profile["Arn"],
            "role": roles[0] if roles else None,
            **tags_of(profile),
        }

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        before, after = old.get("role"), new.get("role")
        if before and before != after:
            cloud.iam.remove_role_from_instance_profile(InstanceProfileName=key, RoleName=before)
        if after and before != after:
            cloud.iam.add_role_to_instance_profile(InstanceProfileName=key, RoleName=after)

    def retag(self, cloud: Cloud, key: str, before: Tags, after: Tags) -> None:
        gone = [name for name in before if name not in after]
        if gone:
            cloud.iam.untag_instance_profile(InstanceProfileName=key, TagKeys=gone)
        if after:
            cloud.iam.tag_instance_profile(InstanceProfileName=key, Tags=listed(after))

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        if state.get("role"):
            cloud.iam.remove_role_from_instance_profile(InstanceProfileName=key, RoleName=state["role"])
        cloud.iam.delete_instance_profile(InstanceProfileName=key)


KINDS: Final[tuple[Kind, ...]] = (Role(), RolePolicy(), InstanceProfile())
