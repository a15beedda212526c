"""What passed a check, and how much of it is remembered."""

from policies.checking.passed import Passed


def test_what_was_looked_at_least_lately_is_forgotten_first() -> None:
    passed = Passed(most=2)
    passed.add(b"a")
    passed.add(b"b")
    assert b"a" in passed
    passed.add(b"c")
    assert [each in passed for each in (b"a", b"b", b"c")] == [True, False, True]
