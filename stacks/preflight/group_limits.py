"""What of the policy's entries AWS would refuse for its length: user data, names and tags of Auto Scaling groups."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Final

from autoscaler.config.group_entry import GroupEntry
from autoscaler.config.policy import Policy, asg_name
from autoscaler.model.errors import BadInput
from stacks.nodes.eks_node_config import EksJoin
from stacks.nodes.join import JoinedBy
from stacks.nodes.node_groups import group_tags, user_data
from stacks.nodes.user_data import LIMIT, Bundle, Join

_TAG_KEY, _TAG_VALUE, _TAGS_PER_GROUP = 128, 256, 50
_NAME_OF_GROUP: Final = 255


def check_groups(policy: Policy, *, source: str, joined_by: JoinedBy = "image") -> None:
    """What the policy asks for, against the limits of EC2 that it cannot know. Raises ``BadInput``.

    ``joined_by``: what user data tells beside it.
    """
    wrong = [
        f"{source}: groups[{place}] ({entry.name}): {mistake}"
        for place, entry in enumerate(policy.groups)
        for mistake in _mistakes(policy, entry, join=_LONGEST[joined_by])
    ]
    if wrong:
        raise BadInput("\n".join(wrong))


def _mistakes(policy: Policy, entry: GroupEntry, *, join: Join | EksJoin | None) -> Iterator[str]:
    size = len(
        user_data(
            cluster=policy.cluster, region=policy.region, entry=entry, join=join, reserved=policy.scale_up.reserve
        ).encode()
    )
    if size > LIMIT:
        yield f"labels and taints make {size} bytes of user data; EC2 takes {LIMIT}"
    for zone in entry.zones:
        name, tags = (
            asg_name(policy.cluster, entry.name, zone),
            group_tags(policy.cluster, policy.region, entry, zone),
        )
        if len(name) > _NAME_OF_GROUP:
            yield f"name: the group in {zone} would be called {name!r}; AWS takes {_NAME_OF_GROUP} characters"
        if len(tags) > _TAGS_PER_GROUP:
            yield (
                f"labels, taints and resources make {len(tags)} tags on the Auto Scaling group; "
                f"AWS takes {_TAGS_PER_GROUP}"
            )
        for key, value in tags.items():
            if len(key) > _TAG_KEY or len(value) > _TAG_VALUE:
                yield (
                    f"{key.rpartition('node-template/')[2]} = {value!r} is too long for a tag of the Auto Scaling "
                    f"group: AWS takes {_TAG_KEY} characters of key, {_TAG_VALUE} of value"
                )
        return  # what is too long in one zone is too long in all


_SERVER: Final = "https://" + 100 * "x"
_AUTHORITY: Final = 30 * (64 * "x" + "\n")  # of an RSA key of 4096 bits
_LONGEST: Final[Mapping[JoinedBy, Join | EksJoin | None]] = {
    "roles": Join(
        server=_SERVER,
        authority=_AUTHORITY,
        token_parameter=160 * "x",
        cluster_dns=("255.255.255.255",),
        bundle=Bundle(url="https://" + 200 * "x", sha256=64 * "x"),
    ),
    "nodeadm": EksJoin(
        server=_SERVER, authority=base64.b64encode(_AUTHORITY.encode()).decode(), service_network="255.255.255.255/32"
    ),
    "image": None,
}
"""What is not known before the control plane is there, at its longest."""
