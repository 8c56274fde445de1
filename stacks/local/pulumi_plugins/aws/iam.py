"""Roles, their policies, and instance profiles, as the stand-in for the aws plugin serves them."""

# ruff: noqa: ARG002 - every kind has the same methods, whatever it needs of what it is given
# ruff: noqa: D102 - they are documented once, in `Kind`
# ruff: noqa: S105 - a token is the name of a type here

from __future__ import annotations

import json
from typing import Any, ClassVar, Final

from stacks.local.pulumi_plugins.aws.kinds import Cloud, Kind, Properties, Tags, found, given, listed, tags_of


class Role(Kind):
    """An IAM role."""

    token = "aws:iam/role:Role"
    inputs = frozenset(
        {
            *("name", "path", "assumeRolePolicy", "permissionsBoundary", "description", "maxSessionDuration"),
            *("forceDetachPolicies", "tags"),
        }
    )
    named = "name"

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        cloud.iam.create_role(
            RoleName=wanted["name"],
            AssumeRolePolicyDocument=wanted["assumeRolePolicy"],
            Tags=listed(tags),
            **given(wanted, path="Path", description="Description", maxSessionDuration="MaxSessionDuration"),
            **given(wanted, permissionsBoundary="PermissionsBoundary"),
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
            "permissionsBoundary": role.get("PermissionsBoundary", {}).get("PermissionsBoundaryArn"),
            "description": role.get("Description"),
            "maxSessionDuration": role.get("MaxSessionDuration"),
            **tags_of(role),
        }

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        if old.get("assumeRolePolicy") != new.get("assumeRolePolicy"):
            cloud.iam.update_assume_role_policy(RoleName=key, PolicyDocument=new["assumeRolePolicy"])
        boundary = new.get("permissionsBoundary")
        if boundary and old.get("permissionsBoundary") != boundary:
            cloud.iam.put_role_permissions_boundary(RoleName=key, PermissionsBoundary=boundary)
        if old.get("permissionsBoundary") and not boundary:
            cloud.iam.delete_role_permissions_boundary(RoleName=key)
        cloud.iam.update_role(
            RoleName=key, **given(new, description="Description", maxSessionDuration="MaxSessionDuration")
        )

    def tag(self, cloud: Cloud, key: str, tags: Tags) -> None:
        cloud.iam.tag_role(RoleName=key, Tags=listed(tags))

    def untag(self, cloud: Cloud, key: str, names: list[str]) -> None:
        cloud.iam.untag_role(RoleName=key, TagKeys=names)

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        iam = cloud.iam
        for profile in iam.list_instance_profiles_for_role(RoleName=key)["InstanceProfiles"]:
            iam.remove_role_from_instance_profile(InstanceProfileName=profile["InstanceProfileName"], RoleName=key)
        if state.get("forceDetachPolicies"):
            for attached in iam.list_attached_role_policies(RoleName=key)["AttachedPolicies"]:
                iam.detach_role_policy(RoleName=key, PolicyArn=attached["PolicyArn"])
            for name in iam.list_role_policies(RoleName=key)["PolicyNames"]:
                iam.delete_role_policy(RoleName=key, PolicyName=name)
        iam.delete_role(RoleName=key)


class InlinePolicy(Kind):
    """What a role or a user may do, written into it. Its id is the holder's name and its own."""

    named = "name"
    tagged = False
    holder: ClassVar[str]
    """``role`` or ``user``: the property, and the word in the names of the calls."""

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        self.update(cloud, "", {}, wanted)
        return f"{wanted[self.holder]}:{wanted['name']}"

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        holder, _, name = key.partition(":")
        document = found(self._call(cloud, "get"), "PolicyDocument", **self._of(holder), PolicyName=name)
        return document and {self.holder: holder, "name": name, "policy": json.dumps(document)}

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        holder = self._of(new[self.holder])
        self._call(cloud, "put")(**holder, PolicyName=new["name"], PolicyDocument=new["policy"])

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        holder, _, name = key.partition(":")
        self._call(cloud, "delete")(**self._of(holder), PolicyName=name)

    def _call(self, cloud: Cloud, verb: str) -> Any:
        return getattr(cloud.iam, f"{verb}_{self.holder}_policy")

    def _of(self, holder: str) -> dict[str, str]:
        return {f"{self.holder.capitalize()}Name": holder}


class RolePolicy(InlinePolicy):
    """What a role may do."""

    token = "aws:iam/rolePolicy:RolePolicy"
    inputs = frozenset({"name", "role", "policy"})
    holder = "role"


class InstanceProfile(Kind):
    """What hands a role to instances."""

    token = "aws:iam/instanceProfile:InstanceProfile"
    inputs = frozenset({"name", "path", "role", "tags"})
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

    def tag(self, cloud: Cloud, key: str, tags: Tags) -> None:
        cloud.iam.tag_instance_profile(InstanceProfileName=key, Tags=listed(tags))

    def untag(self, cloud: Cloud, key: str, names: list[str]) -> None:
        cloud.iam.untag_instance_profile(InstanceProfileName=key, TagKeys=names)

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        if state.get("role"):
            cloud.iam.remove_role_from_instance_profile(InstanceProfileName=key, RoleName=state["role"])
        cloud.iam.delete_instance_profile(InstanceProfileName=key)


class RolePolicyAttachment(Kind):
    """A policy of AWS, given to a role."""

    token = "aws:iam/rolePolicyAttachment:RolePolicyAttachment"
    inputs = frozenset({"role", "policyArn"})
    tagged = False

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        cloud.iam.attach_role_policy(RoleName=wanted["role"], PolicyArn=wanted["policyArn"])
        return f"{wanted['role']}-{wanted['policyArn']}"

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        role, _, policy = key.partition("-arn:")
        attached = found(cloud.iam.list_attached_role_policies, "AttachedPolicies", RoleName=role) or []
        here = f"arn:{policy}" in [one["PolicyArn"] for one in attached]
        return {"role": role, "policyArn": f"arn:{policy}"} if here else None

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cloud.iam.detach_role_policy(RoleName=state["role"], PolicyArn=state["policyArn"])


class _Exclusive(Kind):
    """That a role has these policies, and no others. It is nothing in AWS: to delete it changes nothing there."""

    tagged = False
    listed_as: ClassVar[str]
    """The property with what the role has."""

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        key: str = wanted["roleName"]
        self.update(cloud, key, {}, wanted)
        return key

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        if found(cloud.iam.get_role, "Role", RoleName=key) is None:
            return None
        return {"roleName": key, self.listed_as: self.standing(cloud, key)}

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        for one in sorted(set(self.standing(cloud, key)) - set(new[self.listed_as])):
            self.take_away(cloud, key, one)

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        """Deletes no policy."""

    def standing(self, cloud: Cloud, role: str) -> list[str]:
        """Returns the policies that the role has."""
        raise NotImplementedError

    def take_away(self, cloud: Cloud, role: str, policy: str) -> None:
        """One that is not among them."""
        raise NotImplementedError


class RolePoliciesExclusive(_Exclusive):
    """The policies that are written into a role, by their names, and no others."""

    token = "aws:iam/rolePoliciesExclusive:RolePoliciesExclusive"
    inputs = frozenset({"roleName", "policyNames"})
    unordered = frozenset({"policyNames"})
    listed_as = "policyNames"

    def standing(self, cloud: Cloud, role: str) -> list[str]:
        return list(cloud.iam.list_role_policies(RoleName=role)["PolicyNames"])

    def take_away(self, cloud: Cloud, role: str, policy: str) -> None:
        cloud.iam.delete_role_policy(RoleName=role, PolicyName=policy)


class RolePolicyAttachmentsExclusive(_Exclusive):
    """The policies that are attached to a role, by their ARNs, and no others."""

    token = "aws:iam/rolePolicyAttachmentsExclusive:RolePolicyAttachmentsExclusive"
    inputs = frozenset({"roleName", "policyArns"})
    unordered = frozenset({"policyArns"})
    listed_as = "policyArns"

    def standing(self, cloud: Cloud, role: str) -> list[str]:
        attached = cloud.iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]
        return [one["PolicyArn"] for one in attached]

    def take_away(self, cloud: Cloud, role: str, policy: str) -> None:
        cloud.iam.detach_role_policy(RoleName=role, PolicyArn=policy)


KINDS: Final[tuple[Kind, ...]] = (
    Role(),
    RolePolicy(),
    InstanceProfile(),
    RolePolicyAttachment(),
    RolePoliciesExclusive(),
    RolePolicyAttachmentsExclusive(),
)
