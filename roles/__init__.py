"""The machines. pyinfra deploys that turn a bare machine into a node and keep it one."""
