"""The drop-down of forms of many rows says what Django's says."""

import pytest
from unfold.widgets import UnfoldAdminSelectWidget

from policies.admin.fields import QuickSelect

CHOICES = [("", "none: use the expression below"), ("a", 'A: <less> & "more"'), ('b"<', "B"), (3, "a number")]


def plain(html: str) -> str:
    return "".join(line.strip() for line in html.splitlines())


@pytest.mark.parametrize("value", ["", None, "a", 'b"<', 3, "3", "gone"])
def test_it_is_written_as_djangos_is(value: object) -> None:
    attrs = {"id": "id_rule-0-builtin", "aria-describedby": "id_rule-0-builtin_helptext"}
    former, quick = (make(choices=CHOICES) for make in (UnfoldAdminSelectWidget, QuickSelect))
    assert plain(quick.render("rule-0-builtin", value, attrs)) == plain(former.render("rule-0-builtin", value, attrs))
