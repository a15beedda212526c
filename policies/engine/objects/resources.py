"""Amounts of resources, as kube-scheduler counts them.

Source: kube-scheduler v1.36.3 framework/types.go (Resource.Add, SetMaxResource), util/utils.go (IsScalarResourceName)
and pkg/apis/core/v1/helper/helpers.go. cpu is counted in millicores, all else in whole units.
"""

from collections.abc import Iterable, Mapping

import msgspec

from policies.engine.quantity import Quantity, Text, to_milli, to_value, wrap
from policies.engine.reading import shown
from policies.engine.selectors import is_label_key

# A Kubernetes ResourceList in JSON: name -> quantity.
Quantities = Mapping[str, Text]

CPU, MEMORY, EPHEMERAL, PODS = "cpu", "memory", "ephemeral-storage", "pods"

# What a container without a request counts for in scores (util/pod_resources.go).
DEFAULT_MILLI_CPU = 100
DEFAULT_MEMORY_BYTES = 200 * 1024 * 1024


class Resources(msgspec.Struct):
    """An amount of each resource. `amounts` maps name -> millicores (cpu) or whole units (all else)."""

    amounts: dict[str, int]

    @classmethod
    def of(cls, quantities: Quantities | None) -> "Resources":
        """Read a ResourceList, leaving out the names that the scheduler doesn't count."""
        return cls({name: _amount(name, text) for name, text in (quantities or {}).items() if is_counted(name)})

    @classmethod
    def rounded(cls, quantities: Mapping[str, Quantity]) -> "Resources":
        """Round exact quantities, leaving out the names that the scheduler doesn't count."""
        return cls(
            {
                name: quantity.milli_value() if name == CPU else quantity.value()
                for name, quantity in quantities.items()
                if is_counted(name)
            }
        )

    def get(self, name: str) -> int:
        """Return the amount of one resource, 0 when there is none."""
        return self.amounts.get(name, 0)

    def add(self, other: "Resources") -> None:
        """Add `other` to this amount. A sum that doesn't fit 64 bits wraps, as in Go."""
        amounts = self.amounts
        for name, amount in other.amounts.items():
            amounts[name] = wrap(amounts.get(name, 0) + amount)


def is_scalar(name: str) -> bool:
    """Return whether the scheduler counts the resource besides cpu, memory, ephemeral-storage and pods."""
    if name.startswith(("hugepages-", "attachable-volumes-")):
        return True
    return is_extended(name) or "kubernetes.io/" in name


def is_extended(name: str) -> bool:
    """Return whether the name is an extended resource's (v1 helper IsExtendedResourceName)."""
    if "/" not in name or "kubernetes.io/" in name or name.startswith("requests."):
        return False
    return is_label_key(f"requests.{name}")


def fault_of_ignored(names: Iterable[str], groups: Iterable[str]) -> str:
    """Return why resources or groups of them can't be ignored; "" for nothing.

    Source: kube-scheduler v1.36.3 apis/config/validation/validation_pluginargs.go (validateResources).
    """
    for index, name in enumerate(names):
        if not is_label_key(name):
            return f"ignoredResources[{index}]: {shown(name)} is no resource's name, such as example.com/gpu"
    for index, group in enumerate(groups):
        if "/" in group or not is_label_key(group):
            return f"ignoredResourceGroups[{index}]: {shown(group)} is no domain without a slash, such as example.com"
    return ""


def is_counted(name: str) -> bool:
    """Return whether the scheduler counts the resource at all."""
    return name in {CPU, MEMORY, EPHEMERAL, PODS} or is_scalar(name)


def _amount(name: str, quantity: Text) -> int:
    return to_milli(quantity) if name == CPU else to_value(quantity)
