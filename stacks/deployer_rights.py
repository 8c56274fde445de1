"""What whoever runs ``pulumi up`` needs on AWS; ``python -m stacks.deployer_rights CLUSTER FOLDER`` writes it down.

Derived from the types of resource that the programs make, each with the calls by which the aws plugin makes, reads,
changes and deletes one. What can be narrowed to the cluster's own names is. Imports no Pulumi.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from autoscaler.failures import BadInput
from stacks.project import check_code_here

LIMIT: Final = 6144
"""Characters of a managed policy, without white space."""
_READS: Final = (
    *("autoscaling:Describe*", "ec2:Describe*", "ec2:GetInstanceTypesFromInstanceRequirements", "eks:Describe*"),
    *("eks:List*", "elasticloadbalancing:Describe*", "iam:Get*", "iam:List*", "kms:Describe*", "kms:Get*", "kms:List*"),
    *("logs:Describe*", "logs:List*", "pricing:GetProducts", "s3:Get*", "s3:List*", "ssm:Describe*", "ssm:Get*"),
    *("ssm:List*", "sts:GetCallerIdentity"),
)
_RULES: Final = ("ModifySecurityGroupRules", "UpdateSecurityGroupRuleDescriptionsIngress")
WRITES: Final[Mapping[str, tuple[str, ...]]] = {
    # type -> calls that change something, by their service
    "autoscaling.Group": (
        *("autoscaling:CreateAutoScalingGroup", "autoscaling:UpdateAutoScalingGroup"),
        *("autoscaling:DeleteAutoScalingGroup", "autoscaling:CreateOrUpdateTags", "autoscaling:DeleteTags"),
        *("autoscaling:SetInstanceProtection", "autoscaling:SuspendProcesses", "autoscaling:ResumeProcesses"),
        *("ec2:RunInstances", "iam:CreateServiceLinkedRole", "iam:PassRole"),
    ),
    "autoscaling.LifecycleHook": ("autoscaling:PutLifecycleHook", "autoscaling:DeleteLifecycleHook"),
    "cloudwatch.LogGroup": (
        *("logs:CreateLogGroup", "logs:DeleteLogGroup", "logs:PutRetentionPolicy", "logs:DeleteRetentionPolicy"),
        *("logs:AssociateKmsKey", "logs:TagResource", "logs:UntagResource"),
    ),
    "ebs.Volume": ("ec2:CreateVolume", "ec2:ModifyVolume", "ec2:DeleteVolume"),
    "ec2.Eip": ("ec2:AllocateAddress", "ec2:ReleaseAddress", "ec2:DisassociateAddress"),
    "ec2.FlowLog": (
        "ec2:CreateFlowLogs",
        "ec2:DeleteFlowLogs",
        "logs:CreateLogDelivery",
        "logs:DeleteLogDelivery",
        "iam:PassRole",
    ),
    "ec2.Instance": (
        *("ec2:RunInstances", "ec2:TerminateInstances", "ec2:StopInstances", "ec2:StartInstances"),
        *(
            "ec2:ModifyInstanceAttribute",
            "ec2:ModifyInstanceMetadataOptions",
            "ec2:ReplaceIamInstanceProfileAssociation",
        ),
        "iam:PassRole",
    ),
    "ec2.InternetGateway": (
        *("ec2:CreateInternetGateway", "ec2:AttachInternetGateway", "ec2:DetachInternetGateway"),
        "ec2:DeleteInternetGateway",
    ),
    "ec2.LaunchTemplate": (
        *("ec2:CreateLaunchTemplate", "ec2:CreateLaunchTemplateVersion", "ec2:ModifyLaunchTemplate"),
        *("ec2:DeleteLaunchTemplate", "iam:PassRole"),
    ),
    "ec2.NatGateway": ("ec2:CreateNatGateway", "ec2:DeleteNatGateway"),
    "ec2.NetworkInterface": (
        *("ec2:CreateNetworkInterface", "ec2:ModifyNetworkInterfaceAttribute", "ec2:DetachNetworkInterface"),
        "ec2:DeleteNetworkInterface",
    ),
    "ec2.PlacementGroup": ("ec2:CreatePlacementGroup", "ec2:DeletePlacementGroup"),
    "ec2.Route": ("ec2:CreateRoute", "ec2:ReplaceRoute", "ec2:DeleteRoute"),
    "ec2.RouteTable": ("ec2:CreateRouteTable", "ec2:DeleteRouteTable"),
    "ec2.RouteTableAssociation": (
        *("ec2:AssociateRouteTable", "ec2:ReplaceRouteTableAssociation", "ec2:DisassociateRouteTable"),
    ),
    "ec2.SecurityGroup": (
        *("ec2:CreateSecurityGroup", "ec2:DeleteSecurityGroup", "ec2:RevokeSecurityGroupIngress"),
        "ec2:RevokeSecurityGroupEgress",
    ),
    "ec2.Subnet": ("ec2:CreateSubnet", "ec2:ModifySubnetAttribute", "ec2:DeleteSubnet"),
    "ec2.VpcSecurityGroupRulesExclusive": ("ec2:RevokeSecurityGroupIngress", "ec2:RevokeSecurityGroupEgress"),
    "ec2.VolumeAttachment": ("ec2:AttachVolume", "ec2:DetachVolume", "ec2:StopInstances"),
    "ec2.Vpc": ("ec2:CreateVpc", "ec2:ModifyVpcAttribute", "ec2:DeleteVpc"),
    "ec2.VpcEndpoint": ("ec2:CreateVpcEndpoint", "ec2:ModifyVpcEndpoint", "ec2:DeleteVpcEndpoints"),
    "ec2.CustomerGateway": ("ec2:CreateCustomerGateway", "ec2:DeleteCustomerGateway"),
    "ec2.EipAssociation": ("ec2:AssociateAddress", "ec2:DisassociateAddress"),
    "ec2.VpnConnection": (
        "ec2:CreateVpnConnection",
        "ec2:ModifyVpnConnection",
        "ec2:ModifyVpnTunnelOptions",
        "ec2:DeleteVpnConnection",
    ),
    "ec2.VpnConnectionRoute": ("ec2:CreateVpnConnectionRoute", "ec2:DeleteVpnConnectionRoute"),
    "ec2.VpnGateway": ("ec2:CreateVpnGateway", "ec2:AttachVpnGateway", "ec2:DetachVpnGateway", "ec2:DeleteVpnGateway"),
    "ec2.VpnGatewayRoutePropagation": ("ec2:EnableVgwRoutePropagation", "ec2:DisableVgwRoutePropagation"),
    "ec2transitgateway.VpcAttachment": (
        "ec2:CreateTransitGatewayVpcAttachment",
        "ec2:ModifyTransitGatewayVpcAttachment",
        "ec2:DeleteTransitGatewayVpcAttachment",
    ),
    "eks.AccessEntry": ("eks:CreateAccessEntry", "eks:UpdateAccessEntry", "eks:DeleteAccessEntry"),
    "eks.AccessPolicyAssociation": ("eks:AssociateAccessPolicy", "eks:DisassociateAccessPolicy"),
    "eks.Addon": ("eks:CreateAddon", "eks:UpdateAddon", "eks:DeleteAddon", "iam:PassRole"),
    "eks.Cluster": (
        *("eks:CreateCluster", "eks:UpdateClusterConfig", "eks:UpdateClusterVersion", "eks:DeleteCluster"),
        *("eks:TagResource", "eks:UntagResource", "iam:PassRole", "iam:CreateServiceLinkedRole", "kms:CreateGrant"),
    ),
    "iam.AccessKey": ("iam:CreateAccessKey", "iam:UpdateAccessKey", "iam:DeleteAccessKey"),
    "iam.InstanceProfile": (
        *("iam:CreateInstanceProfile", "iam:DeleteInstanceProfile", "iam:AddRoleToInstanceProfile"),
        *("iam:RemoveRoleFromInstanceProfile", "iam:TagInstanceProfile", "iam:UntagInstanceProfile"),
    ),
    "iam.OpenIdConnectProvider": (
        *("iam:CreateOpenIDConnectProvider", "iam:DeleteOpenIDConnectProvider", "iam:TagOpenIDConnectProvider"),
        *("iam:UntagOpenIDConnectProvider", "iam:UpdateOpenIDConnectProviderThumbprint"),
        "iam:AddClientIDToOpenIDConnectProvider",
    ),
    "iam.Role": (
        *("iam:CreateRole", "iam:DeleteRole", "iam:UpdateRole", "iam:UpdateAssumeRolePolicy", "iam:TagRole"),
        "iam:UntagRole",
    ),
    "iam.RolePolicy": ("iam:PutRolePolicy", "iam:DeleteRolePolicy"),
    "iam.RolePolicyAttachment": ("iam:AttachRolePolicy", "iam:DetachRolePolicy"),
    "iam.User": ("iam:CreateUser", "iam:DeleteUser", "iam:TagUser", "iam:UntagUser"),
    "iam.UserPolicy": ("iam:PutUserPolicy", "iam:DeleteUserPolicy"),
    "kms.Key": (
        *("kms:CreateKey", "kms:EnableKeyRotation", "kms:DisableKeyRotation", "kms:PutKeyPolicy"),
        *("kms:ScheduleKeyDeletion", "kms:UpdateKeyDescription", "kms:TagResource", "kms:UntagResource"),
    ),
    "lb.Listener": (
        *("elasticloadbalancing:CreateListener", "elasticloadbalancing:ModifyListener"),
        "elasticloadbalancing:DeleteListener",
    ),
    "lb.LoadBalancer": (
        *("elasticloadbalancing:CreateLoadBalancer", "elasticloadbalancing:ModifyLoadBalancerAttributes"),
        *("elasticloadbalancing:SetSubnets", "elasticloadbalancing:SetSecurityGroups"),
        *("elasticloadbalancing:DeleteLoadBalancer", "elasticloadbalancing:AddTags", "elasticloadbalancing:RemoveTags"),
    ),
    "lb.TargetGroup": (
        *("elasticloadbalancing:CreateTargetGroup", "elasticloadbalancing:ModifyTargetGroup"),
        *("elasticloadbalancing:ModifyTargetGroupAttributes", "elasticloadbalancing:DeleteTargetGroup"),
    ),
    "lb.TargetGroupAttachment": ("elasticloadbalancing:RegisterTargets", "elasticloadbalancing:DeregisterTargets"),
    "s3.Bucket": (
        *("s3:CreateBucket", "s3:DeleteBucket", "s3:PutBucketTagging", "s3:DeleteObject", "s3:DeleteObjectVersion"),
    ),
    "s3.BucketLifecycleConfiguration": ("s3:PutLifecycleConfiguration",),
    "s3.BucketObjectv2": ("s3:PutObject", "s3:PutObjectTagging", "s3:DeleteObject", "s3:DeleteObjectVersion"),
    "s3.BucketPolicy": ("s3:PutBucketPolicy", "s3:DeleteBucketPolicy"),
    "s3.BucketPublicAccessBlock": ("s3:PutBucketPublicAccessBlock",),
    "s3.BucketServerSideEncryptionConfiguration": ("s3:PutEncryptionConfiguration",),
    "s3.BucketVersioning": ("s3:PutBucketVersioning",),
    "ssm.Activation": ("ssm:CreateActivation", "ssm:DeleteActivation", "ssm:AddTagsToResource", "iam:PassRole"),
    "ssm.Association": ("ssm:CreateAssociation", "ssm:UpdateAssociation", "ssm:DeleteAssociation"),
    "ssm.Parameter": (
        *("ssm:PutParameter", "ssm:DeleteParameter", "ssm:AddTagsToResource", "ssm:RemoveTagsFromResource"),
        *("kms:Encrypt", "kms:Decrypt", "kms:GenerateDataKey"),
    ),
    "vpc.SecurityGroupEgressRule": ("ec2:AuthorizeSecurityGroupEgress", *(f"ec2:{rule}" for rule in _RULES)),
    "vpc.SecurityGroupIngressRule": ("ec2:AuthorizeSecurityGroupIngress", *(f"ec2:{rule}" for rule in _RULES)),
}
_TAGS: Final = ("ec2:CreateTags", "ec2:DeleteTags")
_OWN_NAMES: Final = ("InstanceProfile", "Role", "User", "AccessKey", "PassRole")


def deployer_rights(*, cluster: str) -> dict[str, dict[str, Any]]:
    """Managed policies by name: looking, and changing what is the cluster's."""
    actions = sorted({action for actions in WRITES.values() for action in actions} | set(_TAGS))
    named = [action for action in actions if _has_own_name(action)]
    rest = [action for action in actions if action not in named]
    ec2 = [action for action in rest if action.startswith("ec2:")]
    others = [action for action in rest if action not in ec2]
    own = [f"arn:*:iam::*:{kind}/{cluster}-*" for kind in ("role", "instance-profile", "user")]
    return {
        "look-and-iam": _document(_statement("Look", list(_READS)), _statement("OwnIdentities", named, own)),
        "ec2": _document(_statement("Ec2", ec2)),
        "others": _document(_statement("Others", others)),
    }


def _has_own_name(action: str) -> bool:
    """IAM's own things carry the cluster's name; roles that AWS keeps for its services, and issuers, do not."""
    verb = action.removeprefix("iam:")
    return action.startswith("iam:") and "ServiceLinked" not in verb and any(one in verb for one in _OWN_NAMES)


def _document(*statements: dict[str, Any]) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": list(statements)}


def _statement(sid: str, actions: list[str], resources: list[str] | str = "*") -> dict[str, Any]:
    return {"Sid": sid, "Effect": "Allow", "Action": actions, "Resource": resources}


def main(arguments: list[str]) -> int:
    """Write one file for each policy."""
    if len(arguments) != 2:  # noqa: PLR2004 - a name and a folder
        print("usage: python -m stacks.deployer_rights CLUSTER FOLDER", file=sys.stderr)
        return 2
    try:
        check_code_here()
    except BadInput as mistake:
        print(mistake, file=sys.stderr)
        return 2
    folder = Path(arguments[1])
    for name, document in deployer_rights(cluster=arguments[0]).items():
        path = folder / f"{arguments[0]}-deployer-{name}.json"
        try:
            path.write_text(json.dumps(document, indent=1), encoding="utf-8")
        except OSError as error:
            print(f"{path}: cannot write here: {error.strerror}", file=sys.stderr)
            return 2
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
