"""What a killed engine left of control planes, their instances and ways on-prem: found in AWS, and taken away."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest

from autoscaler.model import labels as words
from stacks.recovery.orphans import OrphanFinder, remove
from tests.test_stacks.stand_in import IMAGE, StandIn, client, stand_in

OURS, OTHERS = {words.TAG_CLUSTER: "lab"}, {words.TAG_CLUSTER: "other"}
BALANCER, TARGETS = "balancer", "targets"


@pytest.fixture(scope="module")
def here() -> Iterator[StandIn]:
    """A stand-in for AWS."""
    with stand_in() as made:
        yield made


@pytest.fixture(scope="module")
def session() -> boto3.session.Session:
    """One that has read what AWS's services are like: each new one takes a second for that."""
    return boto3.session.Session(region_name="us-east-1")


@pytest.fixture
def environment(here: StandIn, session: boto3.session.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials of it."""
    for name, value in (("ENDPOINT_URL", here.url), ("ACCESS_KEY_ID", "local"), ("SECRET_ACCESS_KEY", "local")):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setattr(boto3.session, "Session", lambda **_: session)


def finder(*recorded: tuple[str, str]) -> OrphanFinder:
    """One for the cluster ``lab``; with type and id of what the state knows."""
    return OrphanFinder(region="us-east-1", cluster="lab", recorded=frozenset(recorded))


def listed(tags: dict[str, str]) -> list[dict[str, str]]:
    """As most services take them."""
    return [{"Key": name, "Value": text} for name, text in tags.items()]


# --- EC2: by the Name tag ---


def specified(kind: str, tags: dict[str, str]) -> list[dict[str, Any]]:
    """As EC2 takes them at a creation."""
    return [{"ResourceType": kind, "Tags": listed(tags)}]


def volume(here: StandIn, tags: dict[str, str]) -> str:
    """Of etcd."""
    asked = {"AvailabilityZone": "us-east-1a", "Size": 20, "TagSpecifications": specified("volume", tags)}
    return str(here.ec2.create_volume(**asked)["VolumeId"])


def interface(here: StandIn, tags: dict[str, str]) -> str:
    """Of a member."""
    tagged = specified("network-interface", tags)
    made = here.ec2.create_network_interface(SubnetId=here.subnets[0], TagSpecifications=tagged)
    return str(made["NetworkInterface"]["NetworkInterfaceId"])


def instance(here: StandIn, tags: dict[str, str]) -> str:
    """A member, or a gateway."""
    asked = {"ImageId": IMAGE, "InstanceType": "m6i.large", "MinCount": 1, "MaxCount": 1}
    made = here.ec2.run_instances(**asked, TagSpecifications=specified("instance", tags))
    return str(made["Instances"][0]["InstanceId"])


def customer_gateway(here: StandIn, tags: dict[str, str]) -> str:
    """The router on-prem."""
    asked = {"Type": "ipsec.1", "IpAddress": "198.51.100.7", "BgpAsn": 65000}
    made = here.ec2.create_customer_gateway(**asked, TagSpecifications=specified("customer-gateway", tags))
    return str(made["CustomerGateway"]["CustomerGatewayId"])


def vpn_gateway(here: StandIn, tags: dict[str, str]) -> str:
    """The VPC's end, attached to it."""
    made = here.ec2.create_vpn_gateway(Type="ipsec.1", TagSpecifications=specified("vpn-gateway", tags))
    key = str(made["VpnGateway"]["VpnGatewayId"])
    here.ec2.attach_vpn_gateway(VpnGatewayId=key, VpcId=here.ec2.describe_vpcs()["Vpcs"][0]["VpcId"])
    return key


def vpn(here: StandIn, tags: dict[str, str]) -> str:
    """The connection of both."""
    ends = {"CustomerGatewayId": customer_gateway(here, OTHERS), "VpnGatewayId": vpn_gateway(here, OTHERS)}
    tagged = specified("vpn-connection", tags)
    made = here.ec2.create_vpn_connection(Type="ipsec.1", **ends, TagSpecifications=tagged)
    return str(made["VpnConnection"]["VpnConnectionId"])


def attachment(here: StandIn, tags: dict[str, str]) -> str:
    """The VPC's place at a transit gateway."""
    gateway = here.ec2.create_transit_gateway()["TransitGateway"]["TransitGatewayId"]
    made = here.ec2.create_transit_gateway_vpc_attachment(
        TransitGatewayId=gateway,
        VpcId=here.ec2.describe_vpcs()["Vpcs"][0]["VpcId"],
        SubnetIds=here.subnets[:1],
    )
    key = str(made["TransitGatewayVpcAttachment"]["TransitGatewayAttachmentId"])
    here.ec2.create_tags(Resources=[key], Tags=listed(tags))  # moto takes none when it is made
    return key


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize(
    ("token", "make"),
    [
        ("aws:ec2transitgateway/vpcAttachment:VpcAttachment", attachment),
        ("aws:ebs/volume:Volume", volume),
        ("aws:ec2/networkInterface:NetworkInterface", interface),
        ("aws:ec2/instance:Instance", instance),
        ("aws:ec2/customerGateway:CustomerGateway", customer_gateway),
        ("aws:ec2/vpnGateway:VpnGateway", vpn_gateway),
        ("aws:ec2/vpnConnection:VpnConnection", vpn),
    ],
)
def test_ours_of_that_name_goes_and_nothing_else(
    here: StandIn, token: str, make: Callable[[StandIn, dict[str, str]], str]
) -> None:
    """Neither another cluster's of the same name, nor ours of another, nor what the state records."""
    name = f"lab-{make.__name__}"
    inputs = {"tags": {"Name": name}}
    mine = make(here, OURS | {"Name": name})
    make(here, OTHERS | {"Name": name})
    make(here, OURS | {"Name": f"{name}-2"})
    [orphan] = finder().find(token, "it", inputs)
    assert orphan.what.endswith(f" {mine}")
    assert finder((token, mine)).find(token, "it", inputs) == []
    remove(orphan)
    assert finder().find(token, "it", inputs) == [], "what is seen for an hour after it is gone is not taken for there"
    assert finder().find(token, "it", {"tags": {"Name": f"{name}-2"}})


@pytest.mark.usefixtures("environment")
def test_a_gateway_endpoint_goes_with_the_routes_that_came_later(here: StandIn) -> None:
    """Also where its tables changed: moto knows the first of them alone."""
    vpc = here.ec2.describe_vpcs()["Vpcs"][0]["VpcId"]
    first, later = (here.ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"] for _ in range(2))
    asked = {"VpcId": vpc, "ServiceName": "com.amazonaws.us-east-1.s3", "VpcEndpointType": "Gateway"}
    endpoint = here.ec2.create_vpc_endpoint(**asked, RouteTableIds=[first])["VpcEndpoint"]

    def routes(table: str) -> int:
        return len(here.ec2.describe_route_tables(RouteTableIds=[table])["RouteTables"][0]["Routes"])

    key = {"VpcEndpointId": endpoint["VpcEndpointId"]}
    here.ec2.modify_vpc_endpoint(**key, AddRouteTableIds=[later])
    assert (routes(first), routes(later)) == (2, 2)
    here.ec2.modify_vpc_endpoint(**key, RemoveRouteTableIds=[first])
    assert (routes(first), routes(later)) == (1, 2)
    here.ec2.delete_vpc_endpoints(VpcEndpointIds=list(key.values()))
    assert routes(later) == 1


@pytest.mark.usefixtures("environment")
def test_a_nat_gateway_gives_its_address_back(here: StandIn) -> None:
    """So that the next `up` can make it anew."""
    tagged = specified("natgateway", OURS | {"Name": "lab-nat"})
    address = here.ec2.allocate_address(Domain="vpc")["AllocationId"]
    asked = {"SubnetId": here.subnets[0], "AllocationId": address, "TagSpecifications": tagged}
    here.ec2.create_nat_gateway(**asked)
    [orphan] = finder().find("aws:ec2/natGateway:NatGateway", "it", {"tags": {"Name": "lab-nat"}})
    remove(orphan)
    assert here.ec2.create_nat_gateway(**asked)["NatGateway"]["State"] == "available"


@pytest.mark.usefixtures("environment")
def test_an_endpoint_that_was_taken_away_before_is_not_taken_away_again(here: StandIn) -> None:
    """It keeps its tags for a while, and with it would go the route of the one that was made since."""
    network = here.ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    table = here.ec2.create_route_table(VpcId=network)["RouteTable"]["RouteTableId"]
    for _ in range(2):
        made = here.ec2.create_vpc_endpoint(
            VpcId=network,
            ServiceName="com.amazonaws.us-east-1.s3",
            VpcEndpointType="Gateway",
            RouteTableIds=[table],
            TagSpecifications=specified("vpc-endpoint", OURS | {"Name": "lab-s3"}),
        )["VpcEndpoint"]["VpcEndpointId"]
        [orphan] = finder().find("aws:ec2/vpcEndpoint:VpcEndpoint", "it", {"tags": {"Name": "lab-s3"}})
        assert orphan.what == f"VpcEndpoint {made}"
        remove(orphan)
        [found] = here.ec2.describe_vpc_endpoints(VpcEndpointIds=[made])["VpcEndpoints"]
        assert found["State"] == "deleted"


@pytest.mark.usefixtures("environment")
def test_a_static_route_of_a_connection_is_taken_away(here: StandIn) -> None:
    """EC2 would refuse it twice."""
    connection, token = vpn(here, OURS), "aws:ec2/vpnConnectionRoute:VpnConnectionRoute"
    inputs = {"vpnConnectionId": connection, "destinationCidrBlock": "10.20.0.0/16"}
    assert finder().find(token, "it", inputs) == []
    here.ec2.create_vpn_connection_route(VpnConnectionId=connection, DestinationCidrBlock="10.20.0.0/16")
    [orphan] = finder().find(token, "it", inputs)
    assert finder((token, f"10.20.0.0/16:{connection}")).find(token, "it", inputs) == [], (
        "under the id that the state has"
    )
    remove(orphan)
    assert finder().find(token, "it", inputs) == []


# --- Control planes: by their names ---


@dataclass(frozen=True)
class Stands:
    """What others hang on."""

    role: str
    cluster: dict[str, Any]


@pytest.fixture(scope="module")
def stands(here: StandIn) -> Stands:
    """A role for everything, and what a cluster is made from; ``lab`` itself stands."""
    services = ["eks.amazonaws.com", "ssm.amazonaws.com"]
    allow = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": services}}
    trust = json.dumps({"Version": "2012-10-17", "Statement": [allow]})
    role = client(here.url, "iam").create_role(RoleName="machines", AssumeRolePolicyDocument=trust)["Role"]["Arn"]
    asked = {"roleArn": role, "resourcesVpcConfig": {"subnetIds": here.subnets}, "accessConfig": API}
    client(here.url, "eks").create_cluster(name="stands", tags=OURS, **asked)
    return Stands(role, asked)


API = {"authenticationMode": "API"}


def eks(here: StandIn, stands: Stands, tags: dict[str, str]) -> dict[str, Any]:
    """A cluster."""
    name = f"lab-{tags[words.TAG_CLUSTER]}"
    client(here.url, "eks").create_cluster(name=name, tags=tags, **stands.cluster)
    return {"name": name}


def entry(here: StandIn, _: Stands, tags: dict[str, str]) -> dict[str, Any]:
    """Who may come in."""
    who = f"arn:aws:iam::123456789012:role/{tags[words.TAG_CLUSTER]}"
    client(here.url, "eks").create_access_entry(clusterName="stands", principalArn=who, tags=tags)
    return {"clusterName": "stands", "principalArn": who}


def add_on(here: StandIn, _: Stands, tags: dict[str, str]) -> dict[str, Any]:
    """An add-on."""
    name = "vpc-cni" if tags == OURS else "kube-proxy"
    client(here.url, "eks").create_addon(clusterName="stands", addonName=name, tags=tags)
    return {"clusterName": "stands", "addonName": name}


def issuer(here: StandIn, _: Stands, tags: dict[str, str]) -> dict[str, Any]:
    """Whose tokens IAM believes."""
    url = f"https://issuer/id/{tags[words.TAG_CLUSTER]}"
    asked = {"Url": url, "ClientIDList": ["sts.amazonaws.com"], "ThumbprintList": ["0" * 40]}
    client(here.url, "iam").create_open_id_connect_provider(**asked, Tags=listed(tags))
    return {"url": url}


def activation(here: StandIn, _: Stands, tags: dict[str, str]) -> dict[str, Any]:
    """What machines register by."""
    text = f"On-prem machines of {tags[words.TAG_CLUSTER]}"
    client(here.url, "ssm").create_activation(IamRole="machines", Description=text, Tags=listed(tags))
    return {"description": text}


def user(here: StandIn, _: Stands, tags: dict[str, str]) -> dict[str, Any]:
    """The autoscaler's, where it has an access key."""
    name = f"{tags[words.TAG_CLUSTER]}-autoscaler"
    client(here.url, "iam").create_user(UserName=name, Tags=listed(tags))
    return {"name": name}


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize(
    ("token", "make"),
    [
        ("aws:eks/cluster:Cluster", eks),
        ("aws:eks/accessEntry:AccessEntry", entry),
        ("aws:eks/addon:Addon", add_on),
        ("aws:iam/openIdConnectProvider:OpenIdConnectProvider", issuer),
        ("aws:ssm/activation:Activation", activation),
        ("aws:iam/user:User", user),
    ],
)
def test_what_is_known_by_name_goes_where_it_has_our_tag(
    here: StandIn, stands: Stands, token: str, make: Callable[[StandIn, Stands, dict[str, str]], dict[str, Any]]
) -> None:
    """Another cluster's stays, and what the state records."""
    ours, others = make(here, stands, OURS), make(here, stands, OTHERS)
    assert finder().find(token, "it", others) == []
    [orphan] = finder().find(token, "it", ours)
    assert finder((token, orphan.what.split(" ", 1)[1])).find(token, "it", ours) == []
    remove(orphan)
    assert finder().find(token, "it", ours) == []


@pytest.mark.usefixtures("environment")
def test_a_key_is_found_among_others_and_can_be_had_back_for_a_week(here: StandIn) -> None:
    """Before and after it stand some of another text, of another cluster, and one that goes already."""
    kms, inputs = client(here.url, "kms"), {"description": "secrets of lab"}

    def made(text: str, tags: dict[str, str]) -> str:
        tagged = [{"TagKey": key, "TagValue": value} for key, value in tags.items()]
        return str(kms.create_key(Description=text, Tags=tagged)["KeyMetadata"]["KeyId"])

    def state(key: str) -> Any:
        return kms.describe_key(KeyId=key)["KeyMetadata"]["KeyState"]

    others = [made("another text", OURS), made(inputs["description"], OTHERS)]
    goes = made(inputs["description"], OURS)
    kms.schedule_key_deletion(KeyId=goes, PendingWindowInDays=7)
    mine = made(inputs["description"], OURS)
    others.append(made("another text", OURS))
    [orphan] = finder().find("aws:kms/key:Key", "it", inputs)
    assert orphan.what == f"Key {mine}"
    remove(orphan)
    about = kms.describe_key(KeyId=mine)["KeyMetadata"]
    assert about["KeyState"] == "PendingDeletion"
    assert timedelta(days=6) < about["DeletionDate"] - datetime.now(UTC) <= timedelta(days=7)
    assert [state(key) for key in others] == ["Enabled"] * 3


@pytest.mark.usefixtures("environment")
def test_the_gate_of_a_member_is_found_by_its_instance(here: StandIn) -> None:
    """Where an engine is killed most likely: it waits there for minutes."""
    ssm, token = client(here.url, "ssm"), "aws:ssm/association:Association"
    mine, other = instance(here, OURS), instance(here, OURS)
    for one in (mine, other):
        targets = [{"Key": "InstanceIds", "Values": [one]}]
        ssm.create_association(Name="AWS-RunShellScript", AssociationName="lab-member-0-healthy", Targets=targets)
    inputs = {"associationName": "lab-member-0-healthy", "targets": [{"key": "InstanceIds", "values": [mine]}]}
    [orphan] = finder().find(token, "it", inputs)
    remove(orphan)
    assert finder().find(token, "it", inputs) == []
    [left] = ssm.list_associations()["Associations"]
    assert left["Targets"] == [{"Key": "InstanceIds", "Values": [other]}]


@pytest.mark.usefixtures("environment")
def test_a_key_whose_secret_nobody_knows_and_a_second_listener_go(here: StandIn) -> None:
    """User and load balancer are recorded: what hangs on them alone is ours."""
    iam, elb, vpc = client(here.url, "iam"), client(here.url, "elbv2"), here.ec2.describe_vpcs()["Vpcs"][0]["VpcId"]
    iam.create_user(UserName="lab-keys")
    known = iam.create_access_key(UserName="lab-keys")["AccessKey"]["AccessKeyId"]
    lost = iam.create_access_key(UserName="lab-keys")["AccessKey"]["AccessKeyId"]
    [orphan] = finder(("aws:iam/accessKey:AccessKey", known)).find(
        "aws:iam/accessKey:AccessKey", "it", {"user": "lab-keys"}
    )
    assert orphan.what == f"AccessKey {lost}"
    remove(orphan)

    balancer = elb.create_load_balancer(Name=BALANCER, Subnets=here.subnets, Type="network")["LoadBalancers"][0]
    group = elb.create_target_group(Name=TARGETS, Protocol="TCP", Port=6443, VpcId=vpc)["TargetGroups"][0]
    forward = [{"Type": "forward", "TargetGroupArn": group["TargetGroupArn"]}]
    arn = balancer["LoadBalancerArn"]
    elb.create_listener(LoadBalancerArn=arn, Protocol="TCP", Port=6443, DefaultActions=forward)
    inputs = {"loadBalancerArn": arn, "port": 6443}
    [orphan] = finder().find("aws:lb/listener:Listener", "it", inputs)
    remove(orphan)
    assert finder().find("aws:lb/listener:Listener", "it", inputs) == []
