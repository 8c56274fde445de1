"""As many resources as are asked for, each of which is nothing: what the engine itself needs for them."""

from __future__ import annotations

import os

import pulumi

for number in range(int(os.environ["RESOURCES"])):
    pulumi.CustomResource("empty:index:Thing", f"thing-{number}", {"number": number})
