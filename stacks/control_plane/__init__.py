"""The control plane: EKS, kubeadm on EC2, or a cluster that exists."""
