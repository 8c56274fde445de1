"""The autoscaler and the approver as they are installed in the cluster, with their IAM rights."""
