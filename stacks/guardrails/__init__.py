"""The guardrails: a policy pack that refuses what no stack of ours may have, whoever wrote its program."""
