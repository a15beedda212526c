"""Where Berth answers otherwise than kube-scheduler v1.36.3 on purpose, each with the reason."""

from typing import Any


def is_deviation(case: dict[str, Any], difference: Any) -> bool:
    """Tell whether a difference is one that is kept on purpose."""
    return False
