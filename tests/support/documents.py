"""Holds the documents that commands write against the schemas that the agent ships."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from agent.api.openapi import PREFIX, VERSION, document_names, document_schema

META = "https://json-schema.org/draft/2020-12/schema"


def check_document(document: Mapping[str, Any]) -> None:
    """Fail unless ``document`` names a schema of the agent and is valid by it.

    The output of ``agent schema NAME`` is a JSON schema itself, and is checked as one.
    """
    if document.get("$schema") == META:
        Draft202012Validator.check_schema(document)
        return
    assert "schema" in document, f"a document that does not name its schema: {document}"
    name = document["schema"].removeprefix(PREFIX).removesuffix(VERSION)
    assert name in document_names(), f"agent/api/documents.yaml has no schema of {name}"
    error = best_match(_validator(name).iter_errors(document))
    assert error is None, f"{document['schema']} {error.json_path}: {error.message[:500]}"


@cache
def _validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(document_schema(name))
