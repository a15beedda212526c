"""resourceVersions, compared as whole numbers (Kubernetes enhancement 5504)."""

# The digits of the largest one: Kubernetes' are unsigned numbers of 64 bits.
_LONGEST = 20


def number_of(version: str) -> int:
    """Return a resourceVersion as a number; -1 if it isn't one."""
    is_number = version.isascii() and version.isdecimal() and len(version) <= _LONGEST
    return int(version) if is_number else -1


def later(one: str, other: str) -> str:
    """Return the later of two resourceVersions; what isn't a number is before any other."""
    return max(one, other, key=number_of)
