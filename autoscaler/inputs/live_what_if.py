"""What the acting autoscaler would do for the pods of a file: asked at its door, without rights on AWS."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from autoscaler.acting_replica import acting_replica, asked
from autoscaler.inputs.kube_lists import objects_in
from autoscaler.inputs.listed_pods import asked_in
from autoscaler.kube.client import Kube, Refused
from autoscaler.model import labels as words
from autoscaler.model.errors import Unavailable
from autoscaler.planner.what_if import WhatIf
from autoscaler.record.decisions import to_json


def ask_what_if(kube: Kube, text: str, *, source: str, namespace: str = words.NAMESPACE) -> WhatIf:
    """For the Kubernetes objects of the text.

    Raises ``BadInput`` for what is wrong with them, ``Unavailable`` where no replica acts, or it cannot be asked.
    """
    pods = asked_in(objects_in(text, source), source).pods
    try:
        replica = acting_replica(kube, namespace=namespace)
    except Refused as refused:
        raise Unavailable(f"the API server refuses: {refused}") from None
    if not replica.acts:
        raise Unavailable(replica.in_words(datetime.now(UTC)))
    found = asked(kube, replica, "whatif", namespace=namespace, body=to_json(pods))
    return msgspec.convert(found, WhatIf, strict=False)
