"""The OpenAPI document: made without a warning, so that every name in it is meant."""

from io import StringIO

from django.core.management import call_command


def test_the_schema_is_made_without_warnings() -> None:
    written = StringIO()
    call_command("spectacular", "--validate", "--fail-on-warn", stdout=written)
    assert "openapi: 3" in written.getvalue()
