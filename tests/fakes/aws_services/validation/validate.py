"""What AWS refuses and moto accepts: requests that are wrong in themselves, or that name what is not there.

Each check raises ``Refused`` with AWS's code and words. They see a call before moto does and hold no state of their
own; what exists is asked of :class:`Known`. Tags are looked at in every call, whatever the service.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from stacks.local.wire.aws_protocol import Call, nested
from tests.fakes.aws_services.validation import auto_scaling, launch_templates, network
from tests.fakes.aws_services.validation.iam import check_iam, check_key_policy, check_trust
from tests.fakes.aws_services.validation.lookups import Known
from tests.fakes.aws_services.validation.names import check_names
from tests.fakes.aws_services.validation.tags import check_tags


def check(call: Call, known: Known) -> None:
    """Raise ``Refused`` where AWS would refuse the call."""
    asked = _structured(call)
    found = _CHECKS.get((call.service, call.action))
    if found is not None:
        found(asked, known)
    if not call.changes_something:
        return
    check_tags(call.service, asked)
    check_names(call)
    if call.service == "iam":
        check_iam(call.action, asked)
        check_trust(call.action, asked, known)


def _structured(call: Call) -> Mapping[str, Any]:
    if call.json_protocol:
        return call.parameters
    return nested({key: str(value) for key, value in call.parameters.items()})


_CHECKS: Final[Mapping[tuple[str, str], Callable[[Mapping[str, Any], Known], None]]] = {
    ("autoscaling", "CreateAutoScalingGroup"): auto_scaling.create_group,
    ("autoscaling", "DescribeAutoScalingGroups"): auto_scaling.page,
    ("autoscaling", "DescribeScalingActivities"): auto_scaling.page,
    ("autoscaling", "PutLifecycleHook"): auto_scaling.put_lifecycle_hook,
    ("autoscaling", "UpdateAutoScalingGroup"): auto_scaling.update_group,
    ("ec2", "AuthorizeSecurityGroupEgress"): network.authorize_egress,
    ("ec2", "AuthorizeSecurityGroupIngress"): network.authorize_ingress,
    ("ec2", "CreateLaunchTemplate"): launch_templates.create_launch_template,
    ("ec2", "CreateLaunchTemplateVersion"): launch_templates.create_launch_template_version,
    ("ec2", "CreatePlacementGroup"): auto_scaling.create_placement_group,
    ("ec2", "CreateSecurityGroup"): network.create_security_group,
    ("ec2", "CreateSubnet"): network.create_subnet,
    ("ec2", "CreateVpc"): network.create_vpc,
    **{("ec2", f"Delete{what}"): network.delete_in_use for what in ("SecurityGroup", "Subnet", "Vpc")},
    **{("ec2", f"Delete{end}Gateway"): network.delete_vpn_gateway for end in ("Customer", "Vpn")},
    ("ec2", "DetachInternetGateway"): network.detach_internet_gateway,
    ("ec2", "ReleaseAddress"): network.release_address,
    ("ec2", "RunInstances"): launch_templates.run_instances,
    ("kms", "CreateKey"): check_key_policy,
    ("kms", "PutKeyPolicy"): check_key_policy,
}
