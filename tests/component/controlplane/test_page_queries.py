"""How much each page asks of the database: no more with many rows than with few, and no more than stands in a file that people review.

`UPDATE=yes` writes the file anew.
"""

import os
from pathlib import Path

import pytest
from django.contrib.auth.models import Group, User

from policies.models import Revision
from tests.admin_pages import Asked, paths
from tests.builders import TEAM_FILTER, make_assignment, make_priority_class, make_rule_set
from tests.component.controlplane.test_pages import make_decision, make_process
from tests.component.pages import opened, publish_all

pytestmark = pytest.mark.django_db

BASELINE = Path(__file__).with_name("page_queries.txt")
# As docs/performance.md has it.
MOST = 20
_FEW, _MANY = 2, 8
# What a notice on every page may add before somebody has to look.
_SLACK = 2


def make(first: int, last: int) -> None:
    """Publish rule sets in versions, Assignments and PriorityClasses, leave as many Changes open, and make accounts."""
    numbers = range(first, last)
    sets = [make_rule_set(f"rules-{number}", filters=[TEAM_FILTER]) for number in numbers]
    classes = [make_priority_class(f"class-{number}", value=number + 1) for number in numbers]
    assignments = [
        make_assignment(f"gives-{number}", f"rules-{number}", order=number + 1, match={"namespaces": [f"ns-{number}"]})
        for number in numbers
    ]
    publish_all(*sets, *classes, *assignments)
    again = [make_rule_set(f"rules-{number}", scores=[{"builtin": "LeastRequestedPriority"}]) for number in numbers]
    publish_all(*again)
    for number in numbers:
        opened(make_rule_set(f"rules-{number}"), title=f"one of many, {number}")
        make_decision(pod_name=f"web-{number}", rule_set=f"rules-{number}")
    for number in numbers:
        make_process(id=f"extender@host:{number}:1")
        User.objects.create(username=f"person-{number}").groups.set(Group.objects.all())


def counted() -> dict[str, tuple[int, list[str]]]:
    asking = Asked()
    found = {}
    for name, path in paths().items():
        asking.get(path)  # what a process remembers of what is live is read once
        page, asked = asking.get(path)
        if page.status_code == 200:
            found[name] = (len(asked), asked)
    return found


def test_no_page_asks_more_with_many_rows_than_with_few_nor_more_than_was_reviewed() -> None:
    make(0, _FEW)
    few = counted()
    make(_FEW, _MANY)
    many = counted()
    assert Revision.objects.count() == 4
    grown = {
        name: (few[name][0], number) for name, (number, _) in many.items() if name in few and number > few[name][0]
    }
    assert grown == {}, "they ask once a row"
    if os.environ.get("UPDATE"):
        BASELINE.write_text("".join(f"{number:>2} {name}\n" for name, (number, _) in sorted(many.items())))
    lines = [line.split() for line in BASELINE.read_text().splitlines()]
    reviewed = {name: int(number) for number, name in lines}
    beyond = {name: number for name, (number, _) in many.items() if number > reviewed.get(name, MOST) + _SLACK}
    assert beyond == {}, "look why; UPDATE=yes writes the file anew"
    assert {name: number for name, number in reviewed.items() if number > MOST} == {}
