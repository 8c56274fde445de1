"""The stand-in for AWS: moto, with Auto Scaling groups and instances that live in time."""
