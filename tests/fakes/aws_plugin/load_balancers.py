"""Load balancers, as the stand-in for the aws plugin serves them."""

# ruff: noqa: D102 - they are documented once, in `Kind`
# ruff: noqa: S105 - a token is the name of a type here

from __future__ import annotations

from typing import Any, Final

from stacks.local.pulumi_plugins.aws.kinds import Cloud, Kind, Properties, Tags, first, given, listed, mapped

_HEALTH: Final = {
    "protocol": "HealthCheckProtocol",
    "path": "HealthCheckPath",
    "port": "HealthCheckPort",
}


class _Balancing(Kind):
    """Known by its ARN, which is its id."""

    def tag(self, cloud: Cloud, key: str, tags: Tags) -> None:
        cloud.client("elbv2").add_tags(ResourceArns=[key], Tags=listed(tags))

    def untag(self, cloud: Cloud, key: str, names: list[str]) -> None:
        cloud.client("elbv2").remove_tags(ResourceArns=[key], TagKeys=names)

    @staticmethod
    def _tags(cloud: Cloud, key: str) -> Properties:
        told = cloud.client("elbv2").describe_tags(ResourceArns=[key])["TagDescriptions"]
        return {"tagsAll": mapped(told[0]["Tags"]) if told else {}}


class LoadBalancer(_Balancing):
    """A load balancer."""

    token = "aws:lb/loadBalancer:LoadBalancer"
    inputs = frozenset(
        {"name", "loadBalancerType", "internal", "subnets", "securityGroups", "enableCrossZoneLoadBalancing", "tags"}
    )
    unordered = frozenset({"subnets", "securityGroups"})
    named = "name"

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        made = cloud.client("elbv2").create_load_balancer(
            Name=wanted["name"],
            Type=wanted["loadBalancerType"],
            Scheme="internal" if wanted.get("internal") else "internet-facing",
            Tags=listed(tags),
            **given(wanted, subnets="Subnets", securityGroups="SecurityGroups"),
        )
        key: str = made["LoadBalancers"][0]["LoadBalancerArn"]
        self._attributes(cloud, key, wanted)
        return key

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        one = first(cloud.client("elbv2").describe_load_balancers, "LoadBalancers", LoadBalancerArns=[key])
        return one and {
            "name": one["LoadBalancerName"],
            "arn": key,
            "dnsName": one["DNSName"],
            "zoneId": one.get("CanonicalHostedZoneId"),
            "loadBalancerType": one["Type"],
            "internal": one["Scheme"] == "internal",
            "subnets": [zone["SubnetId"] for zone in one["AvailabilityZones"]],
            "securityGroups": one.get("SecurityGroups", []),
            **self._tags(cloud, key),
        }

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        if old.get("subnets") != new.get("subnets"):
            cloud.client("elbv2").set_subnets(LoadBalancerArn=key, Subnets=new["subnets"])
        if old.get("securityGroups") != new.get("securityGroups"):
            cloud.client("elbv2").set_security_groups(LoadBalancerArn=key, SecurityGroups=new["securityGroups"])
        self._attributes(cloud, key, new)

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cloud.client("elbv2").delete_load_balancer(LoadBalancerArn=key)

    @staticmethod
    def _attributes(cloud: Cloud, key: str, wanted: Properties) -> None:
        across = str(bool(wanted.get("enableCrossZoneLoadBalancing"))).lower()
        attributes = [{"Key": "load_balancing.cross_zone.enabled", "Value": across}]
        cloud.client("elbv2").modify_load_balancer_attributes(LoadBalancerArn=key, Attributes=attributes)


class TargetGroup(_Balancing):
    """What a listener forwards to."""

    token = "aws:lb/targetGroup:TargetGroup"
    inputs = frozenset(
        {"name", "port", "protocol", "targetType", "vpcId", "deregistrationDelay", "healthCheck", "tags"}
    )
    named = "name"

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        made = cloud.client("elbv2").create_target_group(
            Tags=listed(tags),
            **given(wanted, name="Name", port="Port", protocol="Protocol", targetType="TargetType", vpcId="VpcId"),
            **self._health(wanted),
        )
        key: str = made["TargetGroups"][0]["TargetGroupArn"]
        self._delay(cloud, key, wanted)
        return key

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        one = first(cloud.client("elbv2").describe_target_groups, "TargetGroups", TargetGroupArns=[key])
        return one and {
            "name": one["TargetGroupName"],
            "arn": key,
            "port": one["Port"],
            "protocol": one["Protocol"],
            "targetType": one["TargetType"],
            "vpcId": one["VpcId"],
            "healthCheck": {name: one.get(field) for name, field in _HEALTH.items()}
            | {"matcher": one.get("Matcher", {}).get("HttpCode")},
            **self._tags(cloud, key),
        }

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        cloud.client("elbv2").modify_target_group(TargetGroupArn=key, **self._health(new))
        self._delay(cloud, key, new)

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cloud.client("elbv2").delete_target_group(TargetGroupArn=key)

    @staticmethod
    def _health(wanted: Properties) -> dict[str, Any]:
        check = wanted.get("healthCheck", {})
        matcher = {"Matcher": {"HttpCode": check["matcher"]}} if "matcher" in check else {}
        return given(check, **_HEALTH) | matcher

    @staticmethod
    def _delay(cloud: Cloud, key: str, wanted: Properties) -> None:
        seconds = str(wanted.get("deregistrationDelay", 300))
        attributes = [{"Key": "deregistration_delay.timeout_seconds", "Value": seconds}]
        cloud.client("elbv2").modify_target_group_attributes(TargetGroupArn=key, Attributes=attributes)


class Listener(_Balancing):
    """A port of a load balancer."""

    token = "aws:lb/listener:Listener"
    inputs = frozenset({"loadBalancerArn", "port", "protocol", "defaultActions", "tags"})

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        made = cloud.client("elbv2").create_listener(
            LoadBalancerArn=wanted["loadBalancerArn"], Tags=listed(tags), **self._asked(wanted)
        )
        key: str = made["Listeners"][0]["ListenerArn"]
        return key

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        one = first(cloud.client("elbv2").describe_listeners, "Listeners", ListenerArns=[key])
        return one and {
            "arn": key,
            "loadBalancerArn": one["LoadBalancerArn"],
            "port": one["Port"],
            "protocol": one["Protocol"],
            "defaultActions": [
                {"type": action["Type"], "targetGroupArn": action.get("TargetGroupArn")}
                for action in one["DefaultActions"]
            ],
            **self._tags(cloud, key),
        }

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        cloud.client("elbv2").modify_listener(ListenerArn=key, **self._asked(new))

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cloud.client("elbv2").delete_listener(ListenerArn=key)

    @staticmethod
    def _asked(wanted: Properties) -> dict[str, Any]:
        actions = [{"Type": one["type"], "TargetGroupArn": one["targetGroupArn"]} for one in wanted["defaultActions"]]
        return {"Port": wanted["port"], "Protocol": wanted["protocol"], "DefaultActions": actions}


class TargetGroupAttachment(Kind):
    """One target of a group."""

    token = "aws:lb/targetGroupAttachment:TargetGroupAttachment"
    inputs = frozenset({"targetGroupArn", "targetId", "port"})
    tagged = False

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        cloud.client("elbv2").register_targets(
            TargetGroupArn=wanted["targetGroupArn"], Targets=[given(wanted, targetId="Id", port="Port")]
        )
        return f"{wanted['targetGroupArn']}-{wanted['targetId']}"

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        health = cloud.client("elbv2").describe_target_health(TargetGroupArn=wanted["targetGroupArn"])
        targets = [one["Target"] for one in health["TargetHealthDescriptions"]]
        one = next((target for target in targets if target["Id"] == wanted["targetId"]), None)
        return one and {"targetGroupArn": wanted["targetGroupArn"], "targetId": one["Id"], "port": one["Port"]}

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cloud.client("elbv2").deregister_targets(
            TargetGroupArn=state["targetGroupArn"], Targets=[given(state, targetId="Id", port="Port")]
        )


KINDS: Final = (LoadBalancer(), TargetGroup(), Listener(), TargetGroupAttachment())
