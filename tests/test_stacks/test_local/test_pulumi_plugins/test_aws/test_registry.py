"""The types that the stand-in for the aws plugin serves."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from itertools import chain

from stacks.local.pulumi_plugins.aws.registry import _SERVICES, KINDS
from stacks.local.pulumi_plugins.aws.replacements import REPLACED, source_of
from stacks.local.wire.extension import FAKES
from tests import ROOT


def test_no_type_is_served_by_two() -> None:
    """The later one would win unseen, and the programs of the first would fail."""
    served = Counter(kind.token for kind in chain.from_iterable(_SERVICES))
    assert [token for token, times in served.items() if times > 1] == []
    assert served.keys() == KINDS.keys()


def test_what_replaces_a_resource_is_said_once_for_each_type_and_of_what_it_takes() -> None:
    """In the table alone; a part of a property by its path."""
    assert REPLACED.keys() == KINDS.keys()
    for token, kind in KINDS.items():
        assert {path.partition(".")[0] for path in kind.fixed} <= kind.inputs, token
    page = "https://www.pulumi.com/registry/packages/aws/api-docs/ec2transitgateway/vpcattachment/"
    assert source_of("aws:ec2transitgateway/vpcAttachment:VpcAttachment") == page


def test_without_the_fakes_of_the_tests_only_the_local_stack_is_served() -> None:
    """The wheel has no tests, so the stand-ins must start without them, with what `spillway local up` makes."""
    bare = {name: value for name, value in os.environ.items() if name != FAKES}
    program = (
        "import sys; from stacks.local.pulumi_plugins.aws.registry import KINDS; import stacks.local.fake_aws.server;"
        "print(*sorted(KINDS)); print([name for name in sys.modules if name.split('.')[0] == 'tests'])"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, env=bare, capture_output=True, text=True, check=True)
    served, of_tests = done.stdout.splitlines()
    assert of_tests == "[]"
    assert {"aws:autoscaling/group:Group", "aws:ec2/vpcEndpoint:VpcEndpoint"} < set(served.split()) < KINDS.keys()
