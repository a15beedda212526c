"""The tests of a rule set on pages: how many pass, and which fail, in sentences; and adding a test."""

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
    """The test results of a rule set. `sentences` are the failures; `unknown` is set if the tests couldn't complete."""

    passed: int
    failed: int
    sentences: list[str] = []
    unknown: bool = False

    @property
    def heading(self) -> str:
        """The counts, in words."""
        if self.unknown:
            return "Tests: didn't finish"
        return f"Tests: {self.passed} passed, {self.failed} failed" if self.passed or self.failed else "Tests: none yet"


def results_of(rule_set: engine.RuleSet) -> Results:
    """Run the tests of a rule set, in the checking process."""
    total = len(rule_set.spec.tests)
    faults = checking.run_tests(rule_set) if total else []
    failed = {found[1] for fault in faults if (found := _TEST.match(fault.path))}
    said = [fault.message for fault in faults]
    if faults and not failed:
        return Results(0, total, said, unknown=True)
    return Results(total - len(failed), len(failed), said)


def with_test(rule_set: engine.RuleSet, test: dict[str, Any]) -> engine.RuleSet:
    """Return a rule set with one more test, which replaces a test of the same name.

    Raises:
        RuleSetError: it isn't a test, or the rule set has too many.
    """
    document = document_of(rule_set)
    tests = [each for each in document["spec"].get("tests", []) if each.get("name") != test.get("name")]
    spec = {**document["spec"], "tests": [*tests, test]}
    return checking.read_rule_set({**document, "spec": spec})


def say_results(request: HttpRequest, results: Results) -> None:
    """Add a message with the test results; none for a rule set without tests."""
    if not results.passed and not results.failed:
        return
    if results.failed or results.unknown:
        messages.warning(request, f"{results.heading}. {' '.join(f'{each}.' for each in results.sentences[:5])}")
    else:
        messages.success(request, f"{results.heading}.")


class _CheckThrottle(UserRateThrottle):
    """Limits the checks a minute of each account, including those through REST."""

    scope = "check"


def may_check(request: Any) -> bool:
    """Return whether this account may run one more check now: pages check during typing, and each may take seconds."""
    return bool(_CheckThrottle().allow_request(request, APIView()))
