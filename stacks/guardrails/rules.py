"""The rules, purely: from what a program asks for to the words that refuse it. No Pulumi is imported.

A rule looks at one resource (type and inputs, in the plugin's spelling) or at a whole stack, and yields one sentence
for each thing that is wrong, with what would be right.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from autoscaler.model import labels as words

Inputs = Mapping[str, Any]
_WORLD: Final = {4: 8, 6: 16}
"""By version: a network with a shorter prefix is the world, also where it is written in two halves."""
_INGRESS: Final = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
_GROUP: Final = "aws:ec2/securityGroup:SecurityGroup"
_GROUPS: Final = (_GROUP, "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup")
_RULE: Final = "aws:ec2/securityGroupRule:SecurityGroupRule"
_EKS: Final = "aws:eks/cluster:Cluster"
_TEMPLATE: Final = "aws:ec2/launchTemplate:LaunchTemplate"
_INSTANCE: Final = "aws:ec2/instance:Instance"
_SPOT: Final = "aws:ec2/spotInstanceRequest:SpotInstanceRequest"
_FLEET: Final = "aws:ec2/spotFleetRequest:SpotFleetRequest"
_CONFIGURATION: Final = "aws:ec2/launchConfiguration:LaunchConfiguration"
_MACHINES: Final = (_INSTANCE, _SPOT, _CONFIGURATION)
"""What is told of a machine's disks and metadata in one way."""
_STORES: Final[Mapping[str, str]] = {
    "aws:ebs/volume:Volume": "encrypted",
    "aws:ebs/snapshotCopy:SnapshotCopy": "encrypted",
    "aws:ec2/amiCopy:AmiCopy": "encrypted",
    "aws:ebs/encryptionByDefault:EncryptionByDefault": "enabled",
    "aws:efs/fileSystem:FileSystem": "encrypted",
    "aws:rds/instance:Instance": "storageEncrypted",
    "aws:rds/cluster:Cluster": "storageEncrypted",
}
"""What keeps data, and the input that says whether it is encrypted."""
_DATABASES: Final = frozenset(
    {
        *("aws:rds/instance:Instance", "aws:rds/clusterInstance:ClusterInstance", "aws:redshift/cluster:Cluster"),
        *("aws:dms/replicationInstance:ReplicationInstance", "aws:mq/broker:Broker"),
    }
)
"""What may have an address on the internet, by ``publiclyAccessible``."""
_SCALING_GROUP: Final = "aws:autoscaling/group:Group"
_STACK: Final = "pulumi:pulumi:Stack"
_BUCKET: Final = "aws:s3/bucket:Bucket"
_ENCRYPTION: Final = "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration"
_BLOCK: Final = "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock"
_TAGGED: Final = frozenset(
    {
        *(_SCALING_GROUP, _TEMPLATE, _GROUP, _EKS, _INSTANCE, _SPOT, _FLEET, _BUCKET),
        *("aws:efs/fileSystem:FileSystem", "aws:rds/instance:Instance", "aws:rds/cluster:Cluster"),
        *("aws:iam/user:User", "aws:kms/key:Key", "aws:ec2/vpnConnection:VpnConnection"),
        *("aws:ec2/vpc:Vpc", "aws:ec2/subnet:Subnet", "aws:ec2/natGateway:NatGateway", "aws:ec2/eip:Eip"),
        *(
            "aws:ec2/vpcEndpoint:VpcEndpoint",
            "aws:ebs/volume:Volume",
            "aws:iam/role:Role",
            "aws:lb/loadBalancer:LoadBalancer",
        ),
    }
)
"""What is paid for or gives rights: who it belongs to must be seen on it."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One resource of a stack."""

    kind: str
    name: str
    inputs: Inputs
    of: frozenset[str] = field(default=frozenset())
    """Names of the buckets that it is set on."""


def world_open(kind: str, inputs: Inputs) -> Iterator[str]:
    """A way in from the whole internet."""
    for source in _sources(kind, inputs):
        network = ipaddress.ip_network(source, strict=False)
        if network.prefixlen < _WORLD[network.version]:
            yield (
                f"{_ports(inputs)} open to {source}, the whole internet: name the networks that need it, e.g. "
                "10.20.0.0/16, and come in by Session Manager or a VPN from elsewhere"
            )
    for prefix_list in _prefix_lists(kind, inputs):
        yield (
            f"{_ports(inputs)} open to the prefix list {prefix_list}, whose networks are not seen here and may become "
            "the whole internet: name the networks that need it, e.g. 10.20.0.0/16"
        )
    if kind in _DATABASES and inputs.get("publiclyAccessible"):
        yield (
            "publiclyAccessible is true: the database has an address on the internet: set it to false, and come "
            "in by the VPC"
        )


def metadata_without_token(kind: str, inputs: Inputs) -> Iterator[str]:
    """Instances whose metadata, with the keys of their role, is told without a token (IMDSv1)."""
    if kind == _FLEET and inputs.get("launchSpecifications"):
        yield (
            "launchSpecifications cannot ask for a token (IMDSv2): give launchTemplateConfigs, of a launch template "
            "whose metadataOptions.httpTokens is 'required'"
        )
    if kind not in (_TEMPLATE, *_MACHINES):
        return
    options = inputs.get("metadataOptions") or {}
    if options.get("httpEndpoint") != "disabled" and options.get("httpTokens") != "required":
        yield (
            f"metadataOptions.httpTokens is {options.get('httpTokens', 'not set')!r}: it must be 'required' (IMDSv2), "
            "else a request forged through a pod reads the keys of the node's role"
        )


def unencrypted_volumes(kind: str, inputs: Inputs) -> Iterator[str]:
    """Disks, and what else keeps data, that are not encrypted."""
    if kind in _STORES and not inputs.get(_STORES[kind], kind.endswith(":EncryptionByDefault")):
        yield f"{_STORES[kind]} is not true: encrypt what it keeps"
    if kind in _MACHINES:
        disks = [inputs.get("rootBlockDevice") or {}, *(inputs.get("ebsBlockDevices") or [])]
        if not all(disk.get("encrypted") for disk in disks):
            yield "rootBlockDevice.encrypted, or that of another disk, is not true: encrypt every disk"
    if kind == _TEMPLATE:
        disks = [one["ebs"] for one in inputs.get("blockDeviceMappings") or [] if one.get("ebs")]
        if not disks:
            yield "blockDeviceMappings names no disk: the image's own is used, encrypted or not; name it, encrypted"
        for place, disk in enumerate(disks):
            if str(disk.get("encrypted", "")).lower() != "true":
                yield f"blockDeviceMappings[{place}].ebs.encrypted is not 'true': encrypt the disk"


def missing_tags(kind: str, inputs: Inputs, *, required: Collection[str], defaults: Mapping[str, str]) -> Iterator[str]:
    """What is paid for or gives rights, and does not say whose it is."""
    if kind not in _TAGGED:
        return
    tags = inputs.get("tags") or {}
    own = {one["key"] for one in tags} if kind == _SCALING_GROUP else {*tags, *(inputs.get("tagsAll") or {}), *defaults}
    missing = sorted(set(required) - own)
    if missing:
        yield f"has no tag {', '.join(missing)}: make it through the provider that has default_tags, or add them"


def default_tags(provider: Inputs | None) -> dict[str, str]:
    """The tags that a provider adds to whatever it makes."""
    given = (provider or {}).get("defaultTags") or {}
    if isinstance(given, str):  # the SDK hands a provider's nested settings over as JSON
        given = json.loads(given)
    return dict(given.get("tags") or {})


def bare_buckets(resources: Iterable[Seen]) -> Iterator[tuple[str, str]]:
    """Buckets for which no encryption is set, or that could be made public: name and words."""
    listed = list(resources)
    for wanted, why in (
        (_ENCRYPTION, "say by what its objects are encrypted (BucketServerSideEncryptionConfiguration)"),
        (_BLOCK, "see that nobody makes it public (BucketPublicAccessBlock)"),
    ):
        covered = {bucket for one in listed if one.kind == wanted for bucket in one.of}
        for one in listed:
            if one.kind == _BUCKET and one.name not in covered:
                yield one.name, f"the bucket {one.name} has no {wanted.rpartition(':')[2]}: {why}"


def groups_beyond(resources: Iterable[Seen], *, usd_per_hour: float) -> Iterator[str]:
    """Groups that may together cost more than the ceiling, or whose price is not known.

    Maxima are those of the Auto Scaling groups; an entry of the policy has one in each zone and keeps to its max over
    all of them. Prices are those that the program exports (``cost``), where the autoscaler's come from too.
    """
    listed = list(resources)
    prices = _prices(listed)
    maxima: dict[str, int] = {}
    for one in listed:
        if one.kind == _SCALING_GROUP:
            entry = {tag["key"]: tag["value"] for tag in one.inputs.get("tags") or []}.get(words.TAG_GROUP, one.name)
            maxima[entry] = max(maxima.get(entry, 0), int(one.inputs.get("maxSize", 0)))
    for entry in sorted(maxima):
        if maxima[entry] and prices.get(entry) is None:
            yield f"the group {entry} has no price: write usd_per_hour into its entry of the policy"
    known = {entry: count * (prices.get(entry) or 0.0) for entry, count in maxima.items()}
    if sum(known.values()) > usd_per_hour:
        each = ", ".join(f"{entry} {maxima[entry]} x {prices[entry]:g}" for entry in sorted(known) if known[entry])
        yield (
            f"the groups at their max cost {sum(known.values()):.2f} $/h ({each}), over the ceiling of "
            f"{usd_per_hour:g} $/h: "
            "lower groups[].max in the policy, or have the ceiling raised by whoever set it"
        )


def _prices(resources: Sequence[Seen]) -> dict[str, float | None]:
    outputs = next((one.inputs for one in resources if one.kind == _STACK), {})
    groups = (outputs.get("cost") or {}).get("groups") or []
    return {group["entry"]: group.get("usdPerHour") for group in groups}


def _sources(kind: str, inputs: Inputs) -> Iterator[str]:
    if kind == _INGRESS:
        yield from filter(None, (inputs.get("cidrIpv4"), inputs.get("cidrIpv6")))
    elif kind == _RULE and inputs.get("type") == "ingress":
        yield from (*(inputs.get("cidrBlocks") or ()), *(inputs.get("ipv6CidrBlocks") or ()))
    elif kind in _GROUPS:
        for rule in inputs.get("ingress") or ():
            yield from (*(rule.get("cidrBlocks") or ()), *(rule.get("ipv6CidrBlocks") or ()))
    elif kind == _EKS:
        access = inputs.get("vpcConfig") or {}
        if access.get("endpointPublicAccess", True):  # EKS's own default
            yield from access.get("publicAccessCidrs") or ("0.0.0.0/0",)


def _prefix_lists(kind: str, inputs: Inputs) -> Iterator[str]:
    if kind == _INGRESS:
        yield from filter(None, [inputs.get("prefixListId")])
    elif kind == _RULE and inputs.get("type") == "ingress":
        yield from inputs.get("prefixListIds") or ()
    elif kind in _GROUPS:
        for rule in inputs.get("ingress") or ():
            yield from rule.get("prefixListIds") or ()


def _ports(inputs: Inputs) -> str:
    first, last = inputs.get("fromPort"), inputs.get("toPort")
    if first is None:
        return "every port is" if "ipProtocol" in inputs else "a port is"
    return f"port {int(first)} is" if first == last else f"ports {int(first)} to {int(last or first)} are"
