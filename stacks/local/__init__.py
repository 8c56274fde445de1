"""The ground on one machine: the real control plane, fake machines, a stand-in for AWS."""
