"""What ``pulumi up`` runs."""

from __future__ import annotations

import pulumi

from autoscaler.model.errors import BadInput, Unavailable
from stacks.project import check_code, project_folder

try:
    check_code(project_folder())
except BadInput as mistake:
    raise pulumi.RunError(f"bad input: {mistake}") from None

# Only now: in the code of another checkout, the modules of this one may not be there to be imported.
from pulumi.runtime import config

from stacks.interrupted import end_without_a_trace
from stacks.preflight.inputs import read_plans
from stacks.programs import build, check, export
from stacks.settings.stack import check_secrets, read_settings

end_without_a_trace()
try:
    configured, stack = config.CONFIG.get(), pulumi.get_stack()
    settings = read_settings(configured, stack=stack)
    check_secrets(settings, encrypted=list(filter(config.is_config_secret, configured)), stack=stack)
    plans = read_plans(settings)
    check(plans)
    export(build(plans))
except BadInput as mistake:
    # Told without a stack trace; nothing has been touched yet.
    raise pulumi.RunError(f"bad input: {mistake}") from None
except Unavailable as outage:
    raise pulumi.RunError(str(outage)) from None
