"""What the tests of this folder tried, in numbers: the whole form prints how many requests each of them made."""

from typing import Any

from tests.security.people import ASKED, WHOLE


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if WHOLE and ASKED:
        terminalreporter.section("requests made")
        for test, number in sorted(ASKED.items()):
            terminalreporter.line(f"{number:>8,}  {test}")
