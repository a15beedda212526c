"""`berth decisions` beside the server's own list."""

import re
from collections.abc import Callable

import pytest

from tests.component.berth.conftest import run, token_of

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_filters_that_help_and_a_refusal_show_are_filters_of_the_server(
    shell: Callable[[str], dict[str, str]],
) -> None:
    environment = shell(token_of("Auditor", "read"))
    for shown in (
        run(environment, "berth", "decisions", "--help"),
        run(environment, "berth", "decisions", "no-filter", code=1),
    ):
        filters = re.findall(r"\b[a-z_]+=\w+", shown)

        assert filters
        assert run(environment, "berth", "decisions", *filters) == "none\n"
