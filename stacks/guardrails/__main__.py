"""The policy pack: ``pulumi preview --policy-pack stacks/guardrails [--policy-pack-config FILE]``."""

# ruff: noqa: E402 - what is imported is found once the path is set

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).resolve().parent
# The rules are those of the folder that was named, whichever checkout the environment has installed.
sys.path[:] = [str(HERE.parents[1]), *(entry for entry in sys.path if entry != str(HERE))]

from pulumi_policy import (
    EnforcementLevel,
    PolicyConfigSchema,
    PolicyPack,
    PolicyResource,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
    StackValidationArgs,
    StackValidationPolicy,
)

from autoscaler.model import labels as words
from stacks.guardrails import iam_rules, rules

CEILING: Final = 500.0
"""Dollars per hour of all groups at their maxima, where the pack's configuration says nothing else."""
REQUIRED_TAGS: Final = (words.TAG_CLUSTER, f"{words.PREFIX}/made-by")
Rule = Callable[[str, Any], Iterator[str]]


def _resource_rule(name: str, description: str, rule: Rule) -> ResourceValidationPolicy:
    def validate(args: ResourceValidationArgs, report: ReportViolation) -> None:
        for words_of_it in rule(args.resource_type, args.props):
            report(words_of_it, None)

    return ResourceValidationPolicy(name=name, description=description, validate=validate)


def _tags(args: ResourceValidationArgs, report: ReportViolation) -> None:
    if args.resource_type == "aws:autoscaling/group:Group":
        required = [words.TAG_CLUSTER]  # its other tags are for the autoscaler, and AWS counts them
    else:
        required = list(args.get_config().get("tags", REQUIRED_TAGS))
    defaults = rules.default_tags(args.provider.props if args.provider else None)
    for sentence in rules.missing_tags(args.resource_type, args.props, required=required, defaults=defaults):
        report(sentence, None)


def _buckets(args: StackValidationArgs, report: ReportViolation) -> None:
    urns = {one.name: one.urn for one in args.resources}
    for name, sentence in rules.bare_buckets(map(_seen, args.resources)):
        report(sentence, urns[name])


def _ceiling(args: StackValidationArgs, report: ReportViolation) -> None:
    ceiling = float(args.get_config().get("usdPerHour", CEILING))
    for sentence in rules.groups_beyond(map(_seen, args.resources), usd_per_hour=ceiling):
        report(sentence, None)


def _seen(resource: PolicyResource) -> rules.Seen:
    buckets = resource.property_dependencies.get("bucket", [])
    return rules.Seen(
        kind=resource.resource_type,
        name=resource.name,
        inputs=resource.props,
        of=frozenset(one.name for one in buckets),
    )


def main() -> None:
    """Serve the engine that started this process."""
    PolicyPack(
        name="spillway",
        enforcement_level=EnforcementLevel.MANDATORY,
        policies=[
            _resource_rule("no-world-open-port", "No port is open to the whole internet.", rules.world_open),
            _resource_rule(
                "metadata-by-token", "Instance metadata needs a token (IMDSv2).", rules.metadata_without_token
            ),
            _resource_rule(
                "bounded-rights", "No policy is of everything or on everything.", iam_rules.rights_without_bounds
            ),
            _resource_rule("encrypted-volumes", "Every disk is encrypted.", rules.unencrypted_volumes),
            ResourceValidationPolicy(
                name="required-tags",
                description="What is paid for or gives rights says whose it is.",
                validate=_tags,
                config_schema=PolicyConfigSchema(
                    properties={"tags": {"type": "array", "items": {"type": "string"}, "default": list(REQUIRED_TAGS)}}
                ),
            ),
            StackValidationPolicy(
                name="private-encrypted-buckets",
                description="Every bucket is encrypted, and nobody makes it public.",
                validate=_buckets,
            ),
            StackValidationPolicy(
                name="ceiling-of-group-maxima",
                description="All groups at their maxima cost no more than the ceiling, in dollars per hour.",
                validate=_ceiling,
                config_schema=PolicyConfigSchema(
                    properties={"usdPerHour": {"type": "number", "minimum": 0, "default": CEILING}}
                ),
            ),
        ],
    )


if __name__ == "__main__":
    main()
