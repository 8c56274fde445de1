"""The brain. Watches the cluster, decides, resizes EC2 groups. Depends on no other room."""
