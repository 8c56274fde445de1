"""Which properties of a type cannot be changed in place: the provider makes another resource and ends the old one.

The facts are those of the provider's reference, property by property ("changes to this property will trigger
replacement"): :func:`source_of` is the page of a type. The stand-in reads this table and has no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_RULE: Final = frozenset(
    {"cidrIpv4", "fromPort", "ipProtocol", "referencedSecurityGroupId", "securityGroupId", "toPort"}
)
REPLACED: Final[Mapping[str, frozenset[str]]] = {
    "aws:autoscaling/group:Group": frozenset({"name"}),
    "aws:autoscaling/lifecycleHook:LifecycleHook": frozenset({"name"}),
    "aws:cloudwatch/eventRule:EventRule": frozenset({"name"}),
    "aws:cloudwatch/eventTarget:EventTarget": frozenset({"rule", "targetId"}),
    "aws:cloudwatch/logGroup:LogGroup": frozenset({"name"}),
    "aws:ebs/volume:Volume": frozenset({"availabilityZone", "encrypted", "kmsKeyId"}),
    "aws:ec2/customerGateway:CustomerGateway": frozenset({"bgpAsn", "ipAddress", "type"}),
    "aws:ec2/eip:Eip": frozenset({"domain"}),
    "aws:ec2/eipAssociation:EipAssociation": frozenset({"allocationId", "instanceId"}),
    "aws:ec2/flowLog:FlowLog": frozenset(
        {"iamRoleArn", "logDestination", "logDestinationType", "maxAggregationInterval", "trafficType", "vpcId"}
    ),
    "aws:ec2/instance:Instance": frozenset(
        {
            "ami",
            "primaryNetworkInterface",
            "rootBlockDevice.encrypted",
            "rootBlockDevice.kmsKeyId",
            "subnetId",
            "userDataBase64",
        }
    ),
    "aws:ec2/internetGateway:InternetGateway": frozenset(),
    "aws:ec2/launchTemplate:LaunchTemplate": frozenset({"name"}),
    "aws:ec2/natGateway:NatGateway": frozenset({"allocationId", "connectivityType", "subnetId"}),
    "aws:ec2/networkInterface:NetworkInterface": frozenset({"subnetId"}),
    "aws:ec2/placementGroup:PlacementGroup": frozenset({"name", "partitionCount", "spreadLevel", "strategy"}),
    "aws:ec2/route:Route": frozenset({"destinationCidrBlock", "routeTableId"}),
    "aws:ec2/routeTable:RouteTable": frozenset({"vpcId"}),
    "aws:ec2/routeTableAssociation:RouteTableAssociation": frozenset({"subnetId"}),
    "aws:ec2/securityGroup:SecurityGroup": frozenset({"description", "name", "vpcId"}),
    "aws:ec2/subnet:Subnet": frozenset({"availabilityZone", "cidrBlock", "vpcId"}),
    "aws:ec2/volumeAttachment:VolumeAttachment": frozenset({"deviceName", "instanceId", "volumeId"}),
    "aws:ec2/vpc:Vpc": frozenset({"cidrBlock"}),
    # The provider changes privateDnsEnabled of interface endpoints in place. Stricter here.
    "aws:ec2/vpcEndpoint:VpcEndpoint": frozenset({"privateDnsEnabled", "serviceName", "vpcEndpointType", "vpcId"}),
    "aws:ec2/vpcSecurityGroupRulesExclusive:VpcSecurityGroupRulesExclusive": frozenset({"securityGroupId"}),
    "aws:ec2/vpnConnection:VpnConnection": frozenset({"staticRoutesOnly", "type"}),
    "aws:ec2/vpnConnectionRoute:VpnConnectionRoute": frozenset({"destinationCidrBlock", "vpnConnectionId"}),
    "aws:ec2/vpnGateway:VpnGateway": frozenset({"amazonSideAsn"}),
    "aws:ec2/vpnGatewayRoutePropagation:VpnGatewayRoutePropagation": frozenset({"routeTableId", "vpnGatewayId"}),
    "aws:ec2transitgateway/vpcAttachment:VpcAttachment": frozenset({"transitGatewayId", "vpcId"}),
    "aws:eks/accessEntry:AccessEntry": frozenset({"clusterName", "principalArn", "type"}),
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": frozenset(
        {"accessScope", "clusterName", "policyArn", "principalArn"}
    ),
    "aws:eks/addon:Addon": frozenset({"addonName", "clusterName"}),
    # The provider replaces for an encryptionConfig that is taken away. Stricter here.
    "aws:eks/cluster:Cluster": frozenset(
        {"accessConfig.bootstrapClusterCreatorAdminPermissions", "encryptionConfig", "name", "roleArn"}
    ),
    "aws:iam/accessKey:AccessKey": frozenset({"user"}),
    "aws:iam/instanceProfile:InstanceProfile": frozenset({"name", "path"}),
    "aws:iam/openIdConnectProvider:OpenIdConnectProvider": frozenset({"url"}),
    "aws:iam/role:Role": frozenset({"name", "path"}),
    "aws:iam/rolePoliciesExclusive:RolePoliciesExclusive": frozenset({"roleName"}),
    "aws:iam/rolePolicy:RolePolicy": frozenset({"name", "role"}),
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": frozenset({"policyArn", "role"}),
    "aws:iam/rolePolicyAttachmentsExclusive:RolePolicyAttachmentsExclusive": frozenset({"roleName"}),
    # The provider renames a user; an update of the engine's protocol cannot give another id. Stricter here.
    "aws:iam/user:User": frozenset({"name", "path"}),
    "aws:iam/userPolicy:UserPolicy": frozenset({"name", "user"}),
    "aws:kms/key:Key": frozenset(),
    "aws:lb/listener:Listener": frozenset({"loadBalancerArn"}),
    "aws:lb/loadBalancer:LoadBalancer": frozenset({"internal", "loadBalancerType", "name"}),
    "aws:lb/targetGroup:TargetGroup": frozenset({"name", "port", "protocol", "targetType", "vpcId"}),
    "aws:lb/targetGroupAttachment:TargetGroupAttachment": frozenset({"port", "targetGroupArn", "targetId"}),
    "aws:s3/bucket:Bucket": frozenset({"bucket"}),
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": frozenset({"bucket"}),
    "aws:s3/bucketObjectv2:BucketObjectv2": frozenset({"bucket", "key"}),
    "aws:s3/bucketPolicy:BucketPolicy": frozenset({"bucket"}),
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": frozenset({"bucket"}),
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": frozenset({"bucket"}),
    "aws:s3/bucketVersioning:BucketVersioning": frozenset({"bucket"}),
    "aws:sqs/queue:Queue": frozenset({"name"}),
    "aws:sqs/queuePolicy:QueuePolicy": frozenset({"queueUrl"}),
    "aws:ssm/activation:Activation": frozenset(
        {"description", "expirationDate", "iamRole", "name", "registrationLimit"}
    ),
    "aws:ssm/association:Association": frozenset({"name"}),
    "aws:ssm/parameter:Parameter": frozenset({"name"}),
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": _RULE,
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": _RULE,
}
"""By token; `rootBlockDevice.kmsKeyId` is that part of `rootBlockDevice` alone."""


def source_of(token: str) -> str:
    """The page of the provider's reference that says so."""
    service, kind = token.split(":")[1].split("/")
    return f"https://www.pulumi.com/registry/packages/aws/api-docs/{service}/{kind.lower()}/"
