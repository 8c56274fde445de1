"""The local cluster's life: control plane, machines, status, up and down."""
