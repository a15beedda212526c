"""The tests inside a rule set, as pages show them: how many hold, and in sentences what fails; and one more put beside them."""

import re
from typing import Any

import msgspec
from django.contrib import messages
from django.http import HttpRequest
from rest_framework.throttling import UserRateThrottle
from rest_framework.views import APIView

from policies import checking
from policies.engine import ruleset as engine
from policies.engine.documents import document_of

_TEST = re.compile(r"spec\.tests\[(\d+)\]")


class Results(msgspec.Struct, frozen=True):
    """How the tests of a rule set came out. `sentences` say what failed; `unknown` says that they couldn't be run to the end."""

    passed: int
    failed: int
    sentences: list[str] = []
    unknown: bool = False

    @property
    def heading(self) -> str:
        """The counts, in words."""
        if self.unknown:
            return "Tests: not run to the end"
        return f"Tests: {self.passed} passed, {self.failed} failed" if self.passed or self.failed else "Tests: none yet"


def results_of(rule_set: engine.RuleSet) -> Results:
    """Run the tests of a rule set, in the process that checks documents."""
    total = len(rule_set.spec.tests)
    faults = checking.run_tests(rule_set) if total else []
    failed = {found[1] for fault in faults if (found := _TEST.match(fault.path))}
    said = [fault.message for fault in faults]
    if faults and not failed:
        return Results(0, total, said, unknown=True)
    return Results(total - len(failed), len(failed), said)


def with_test(rule_set: engine.RuleSet, test: dict[str, Any]) -> engine.RuleSet:
    """Return a rule set with one more test; one of the same name is replaced.

    Raises:
        RuleSetError: it isn't a test, or the rule set has too many.
    """
    document = document_of(rule_set)
    tests = [each for each in document["spec"].get("tests", []) if each.get("name") != test.get("name")]
    spec = {**document["spec"], "tests": [*tests, test]}
    return checking.read_rule_set({**document, "spec": spec})


def say_results(request: HttpRequest, results: Results) -> None:
    """Show on the next page how the tests came out; nothing where there are none."""
    if not results.passed and not results.failed:
        return
    if results.failed or results.unknown:
        messages.warning(request, f"{results.heading}. {' '.join(f'{each}.' for each in results.sentences[:5])}")
    else:
        messages.success(request, f"{results.heading}.")


class _CheckThrottle(UserRateThrottle):
    """So many checks a minute for each account, those by REST among them."""

    scope = "check"


def may_check(request: Any) -> bool:
    """Return whether this account may ask for one more check now: a page asks while one types, and a check takes up to seconds."""
    return bool(_CheckThrottle().allow_request(request, APIView()))
