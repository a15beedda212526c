"""The cost of checking a document in this process and in the checking process.

`python -m bench.checking` checks documents in turns, with the engine itself and with `policies.checking`. It prints the median
milliseconds of each, and the time of the first check, which starts the checking process.
"""

from collections.abc import Callable
from statistics import median
from time import perf_counter

from bench.arguments import parse_no_arguments
from policies import checking
from policies.engine.ruleset import API_VERSION
from policies.engine.validation import read_rule_set

_ROUNDS = 100


def document_of(rules: int) -> dict[str, object]:
    """Make a rule set with this number of filters."""
    filters = [
        {
            "name": f"f{number}",
            "expression": f"node.metadata.labels[?'team'].orValue('') != 'x{number}'",
            "reason": "no",
        }
        for number in range(rules)
    ]
    return {"apiVersion": API_VERSION, "kind": "RuleSet", "metadata": {"name": "web"}, "spec": {"filters": filters}}


def _milliseconds(check: Callable[[object], object], document: object) -> float:
    started = perf_counter()
    check(document)
    return (perf_counter() - started) * 1000


def main() -> None:
    """Measure and print."""
    parse_no_arguments(__doc__)
    print(f"the first check, which starts the process: {_milliseconds(checking.read_rule_set, document_of(1)):,.0f} ms")
    print(f"{'rules':>6} {'here':>8} {'apart':>8} {'more':>8}   milliseconds, median of {_ROUNDS}")
    for rules in (1, 10, 100):
        document = document_of(rules)
        found = [
            (_milliseconds(read_rule_set, document), _milliseconds(checking.read_rule_set, document))
            for _ in range(_ROUNDS)
        ]
        here, apart = (median(each) for each in zip(*found, strict=True))
        print(f"{rules:>6} {here:>8.2f} {apart:>8.2f} {apart - here:>8.2f}")


if __name__ == "__main__":
    main()
