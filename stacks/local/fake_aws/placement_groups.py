"""Placement groups, which moto's EC2 does not have: made, described, deleted when no instance is in them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any, Final

from moto.core.responses import ActionResult, EmptyResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import EC2Backend
from moto.ec2.responses import EC2Response

STRATEGIES: Final = ("cluster", "partition", "spread")


@dataclass
class PlacementGroups:
    """Those of one region, by name."""

    strategies: dict[str, str] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    uses: dict[str, str] = field(default_factory=dict)
    """Names of the groups that instances are in, by the instances' ids."""
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def create(self, name: str, strategy: str) -> str:
        """Its id. A name is taken once."""
        if name in self.strategies:
            raise EC2ClientError("InvalidPlacementGroup.Duplicate", f"The Placement Group '{name}' already exists.")
        self.strategies[name], self.ids[name] = strategy, f"pg-{next(self._numbers):017x}"
        return self.ids[name]

    def delete(self, name: str) -> str:
        """The id that it had. One with instances stays."""
        if name not in self.strategies:
            raise unknown(name)
        if name in self.uses.values():
            raise EC2ClientError("InvalidPlacementGroup.InUse", f"The placement group '{name}' is in use.")
        del self.strategies[name]
        return self.ids.pop(name)


class PlacementGroupCalls(EC2Response):
    """EC2's calls for placement groups."""

    def create_placement_group(self) -> ActionResult:
        """Makes a placement group with its tags."""
        name, strategy = self._get_param("GroupName"), self._get_param("Strategy", "cluster")
        key = self._groups.create(name, strategy)
        tags = self._parse_tag_specification().get("placement-group", {})
        if tags:
            self.ec2_backend.create_tags([key], tags)
        return ActionResult({"PlacementGroup": self._described(name)})

    def describe_placement_groups(self) -> ActionResult:
        """All, or those of the names or ids that are given."""
        names, keys = self._get_param("GroupNames", []), self._get_param("GroupIds", [])
        for name in names:
            if name not in self._groups.strategies:
                raise unknown(name)
        wanted = [
            name
            for name in self._groups.strategies
            if (not names or name in names) and (not keys or self._groups.ids[name] in keys)
        ]
        return ActionResult({"PlacementGroups": [self._described(name) for name in wanted]})

    def delete_placement_group(self) -> ActionResult:
        """Deletes a placement group before it answers."""
        key = self._groups.delete(self._get_param("GroupName"))
        self.ec2_backend.tags.pop(key, None)
        return EmptyResult()

    def _described(self, name: str) -> dict[str, Any]:
        key = self._groups.ids[name]
        tags = [{"Key": tag, "Value": value} for tag, value in self.ec2_backend.tags.get(key, {}).items()]
        return {
            "GroupName": name,
            "GroupId": key,
            "State": "available",
            "Strategy": self._groups.strategies[name],
            "Tags": tags,
        }

    @property
    def _groups(self) -> PlacementGroups:
        return placement_groups(self.ec2_backend)


def placement_groups(backend: EC2Backend) -> PlacementGroups:
    """Returns the placement groups of a region."""
    groups: PlacementGroups = backend.placement_groups  # type: ignore[attr-defined]  # `Ec2` has them
    return groups


def unknown(name: str) -> EC2ClientError:
    """Returns the error of AWS for a placement group that is not there."""
    return EC2ClientError("InvalidPlacementGroup.Unknown", f"The Placement Group '{name}' is unknown.")
