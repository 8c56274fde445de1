"""The calls by which the aws plugin makes, changes and deletes each type of resource that the programs make.

From the plugin's source (github.com/hashicorp/terraform-provider-aws, ``internal/service``), not from what a stand-in
of it calls. Imports no Pulumi.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

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
    "cloudwatch.EventRule": ("events:PutRule", "events:DeleteRule", "events:TagResource", "events:UntagResource"),
    "cloudwatch.EventTarget": ("events:PutTargets", "events:RemoveTargets"),
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
    "iam.RolePoliciesExclusive": ("iam:DeleteRolePolicy",),
    "iam.RolePolicy": ("iam:PutRolePolicy", "iam:DeleteRolePolicy"),
    "iam.RolePolicyAttachment": ("iam:AttachRolePolicy", "iam:DetachRolePolicy"),
    "iam.RolePolicyAttachmentsExclusive": ("iam:AttachRolePolicy", "iam:DetachRolePolicy"),
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
        *(
            "s3:CreateBucket",
            "s3:DeleteBucket",
            "s3:PutBucketTagging",
            "s3:TagResource",
            "s3:UntagResource",
            "s3:DeleteObject",
            "s3:DeleteObjectVersion",
        ),
    ),
    "s3.BucketLifecycleConfiguration": ("s3:PutLifecycleConfiguration",),
    "s3.BucketObjectv2": ("s3:PutObject", "s3:PutObjectTagging", "s3:DeleteObject", "s3:DeleteObjectVersion"),
    "s3.BucketPolicy": ("s3:PutBucketPolicy", "s3:DeleteBucketPolicy"),
    "s3.BucketPublicAccessBlock": ("s3:PutBucketPublicAccessBlock",),
    "s3.BucketServerSideEncryptionConfiguration": ("s3:PutEncryptionConfiguration",),
    "s3.BucketVersioning": ("s3:PutBucketVersioning",),
    "sqs.Queue": (*("sqs:CreateQueue", "sqs:SetQueueAttributes", "sqs:DeleteQueue", "sqs:TagQueue", "sqs:UntagQueue"),),
    "sqs.QueuePolicy": ("sqs:SetQueueAttributes",),
    "ssm.Activation": ("ssm:CreateActivation", "ssm:DeleteActivation", "ssm:AddTagsToResource", "iam:PassRole"),
    "ssm.Association": (
        *("ssm:CreateAssociation", "ssm:UpdateAssociation", "ssm:DeleteAssociation", "ssm:AddTagsToResource"),
    ),
    "ssm.Parameter": (
        *("ssm:PutParameter", "ssm:DeleteParameter", "ssm:AddTagsToResource", "ssm:RemoveTagsFromResource"),
        *("kms:Encrypt", "kms:Decrypt", "kms:GenerateDataKey"),
    ),
    "vpc.SecurityGroupEgressRule": ("ec2:AuthorizeSecurityGroupEgress", *(f"ec2:{rule}" for rule in _RULES)),
    "vpc.SecurityGroupIngressRule": ("ec2:AuthorizeSecurityGroupIngress", *(f"ec2:{rule}" for rule in _RULES)),
}
