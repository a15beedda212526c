"""The OpenAPI document: made without a warning, so that every name in it is meant."""

import json
from io import StringIO

from django.core.management import call_command


def test_the_schema_is_made_without_warnings() -> None:
    written = StringIO()
    call_command("spectacular", "--validate", "--fail-on-warn", stdout=written)
    assert "openapi: 3" in written.getvalue()


def test_each_object_of_a_list_is_said_to_be_what_it_is() -> None:
    written = StringIO()
    call_command("spectacular", "--format", "openapi-json", stdout=written)
    paths = json.loads(written.getvalue())["paths"]
    told = paths["/api/v1/revisions/{number}"]["get"]["description"]
    assert told == "A Revision with its whole document, and the exact text that its digest is computed from."
