"""Names of container images, as every room takes them."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from autoscaler.config.image_names import ImageName

DIGEST = "sha256:" + "0123456789abcdef" * 4
KIND: TypeAdapter[str] = TypeAdapter(ImageName)


@pytest.mark.parametrize(
    "name",
    [
        "busybox",
        "registry.k8s.io/pause:3.10",
        "localhost:5000/team/mnist:1.0",
        "[fd00::1]:5000/mnist",
        "Registry.Example.org/team/my__image.v2--x:Latest_1.0-rc",
        f"123456789012.dkr.ecr.us-east-1.amazonaws.com/spillway/autoscaler@{DIGEST}",
        f"registry.example.org/a/b/c:1@{DIGEST}",
    ],
)
def test_a_name_that_a_runtime_fetches_is_taken(name: str) -> None:
    """With and without registry, tag and digest."""
    assert KIND.validate_python(name) == name


@pytest.mark.parametrize(
    "name",
    [
        *("", "Mnist:1", "team/Mnist", "mnist:", "mnist:-1", "mnist: 1.0", "mnist:1\n", "https://registry.org/mnist"),
        *("registry.org//mnist", "/mnist", "mnist/", "a..b", "a___b", "mnist@sha256:0123", "-mnist", "mnist:1:2"),
        *("mnist:" + "a" * 129, "registry.org:port/mnist", "mnist@", "registry..org/mnist"),
    ],
)
def test_what_no_runtime_fetches_is_refused(name: str) -> None:
    """Before a node waits for it."""
    with pytest.raises(ValidationError, match="is not the name of an image: write one such as"):
        KIND.validate_python(name)
