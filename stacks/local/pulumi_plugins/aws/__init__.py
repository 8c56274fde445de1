"""The stand-in for Pulumi's aws plugin: the resource types that our programs use."""
