"""What the acting autoscaler would do for the pods of a file: asked at its door, without rights on AWS."""

from __future__ import annotations

from typing import Any

import msgspec

from autoscaler.inputs.kube_lists import objects_in
from autoscaler.inputs.listed_pods import asked_in
from autoscaler.kube.client import Kube
from autoscaler.model import labels as words
from autoscaler.planner.explanation.what_if import Reason, WhatIf
from autoscaler.record.decisions import to_json
from autoscaler.replica.acting_replica import ask_acting


def ask_what_if(kube: Kube, text: str, *, source: str, namespace: str = words.NAMESPACE) -> WhatIf:
    """What would be done for the Kubernetes objects of the text, beside what is there.

    Raises ``BadInput`` for what is wrong with them, ``Unavailable`` where no replica acts, or it cannot be asked.
    """
    return msgspec.convert(_asked(kube, "whatif", text, source, namespace), WhatIf, strict=False)


def ask_impossible(kube: Kube, text: str, *, source: str, namespace: str = words.NAMESPACE) -> tuple[Reason, ...]:
    """Asks which of the objects could never be placed, even if nothing else ran. Raises as :func:`ask_what_if` does."""
    return msgspec.convert(_asked(kube, "impossible", text, source, namespace), tuple[Reason, ...], strict=False)


def _asked(kube: Kube, question: str, text: str, source: str, namespace: str) -> Any:
    pods = asked_in(objects_in(text, source), source).pods
    return ask_acting(kube, question, namespace=namespace, body=to_json(pods))
