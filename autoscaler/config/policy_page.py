"""What is generated from the policy's schema: JSON Schema for editors, and the table of keys of the documentation."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from autoscaler.config.document_keys import as_markdown, keys_of
from autoscaler.config.documents import span_in_words
from autoscaler.config.policy import Policy

BEGIN: Final = "<!-- begin of what `spillway policy schema --markdown` prints -->\n"
END: Final = "<!-- end of it -->\n"


def json_schema() -> str:
    """The policy file as JSON Schema (draft 2020-12), each key with its meaning and when an edit takes effect."""
    schema = Policy.model_json_schema(schema_generator=_WithTimes) | {
        "$schema": "https://json-schema.org/draft/2020-12/schema"
    }
    return json.dumps(schema, indent=2, sort_keys=True) + "\n"


def key_table() -> str:
    """Every key of the policy as a row of a Markdown table."""
    return as_markdown(keys_of(Policy))


def with_table(page: str) -> str:
    """The page with the table between its two marks made anew."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}{key_table()}{END}{tail}"


class _WithTimes(GenerateJsonSchema):
    """Defaults that are times as people write them."""

    def encode_default(self, dft: Any) -> Any:
        """Writes a default as pydantic, but for times; an optional part has the defaults of its keys."""
        if isinstance(dft, BaseModel):
            return {}
        return span_in_words(dft) if isinstance(dft, timedelta) else super().encode_default(dft)
