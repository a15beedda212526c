"""The ladder of PriorityClasses: all that are live or in the cluster, the highest value first, with who uses each."""

from collections.abc import Iterable
from typing import Any

import msgspec
from django.db.models import Count, Sum

from policies import publishing
from policies.engine import ruleset as engine
from policies.models import ClusterPriorityClass, PriorityClassUser

# How many classes are shown, the highest first; the list below has all of Berth's.
MOST_RUNGS = 200
# The longest width of a bar in the drawing's units, and the shortest one that is visible.
_BAR_WIDTH = 100
_SHORTEST = 1.0
_SIGNS = {"applied": "✓", "pending": "…", "system": "", "kept": "", "foreign": "!", "drifted": "!"}
_State = ClusterPriorityClass.State


def signed(state: str) -> str:
    """Return a state with its sign, so that no meaning depends on colour alone."""
    return f"{_SIGNS.get(state, '✗')} {state}".strip()


class Rung(msgspec.Struct, frozen=True):
    """One class: its fields, its state in the cluster, how many Pods and namespaces use it."""

    name: str
    value: int
    state: str
    message: str = ""
    is_default: bool = False
    preempts: bool = True
    pods: int = 0
    namespaces: int = 0
    # The width of its bar.
    width: float = 0.0

    @property
    def badge(self) -> str:
        """Its state with a sign."""
        return signed(self.state)

    @property
    def is_system(self) -> bool:
        """Whether it is Kubernetes' own."""
        return self.state == _State.SYSTEM

    @property
    def is_wrong(self) -> bool:
        """Whether somebody should check it."""
        return self.badge[:1] in {"!", "✗"}


def ladder() -> dict[str, Any]:
    """Return the page's context: the rungs, how many more there are, and how many classes others have made."""
    live = publishing.live_priority_classes()
    found = {row.name: row for row in ClusterPriorityClass.objects.all()}
    of_others = [name for name, row in found.items() if row.present and name not in live and row.state != _State.SYSTEM]
    rungs = [_live(each, found.get(name)) for name, each in live.items()]
    rungs += [_of_others(row) for name, row in found.items() if row.present and name not in live]
    rungs.sort(key=lambda rung: (-rung.value, rung.name))
    return {
        "rungs": _with_users(rungs[:MOST_RUNGS]),
        "more_rungs": max(0, len(rungs) - MOST_RUNGS),
        "others": len(of_others),
        "bar_width": _BAR_WIDTH,
    }


def _live(live: engine.PriorityClass, found: ClusterPriorityClass | None) -> Rung:
    state = publishing.priority_class_state(live, found)
    preempts = live.preemption_policy != "Never"
    return Rung(live.name, live.value, state.state, state.message, live.global_default, preempts)


def _of_others(row: ClusterPriorityClass) -> Rung:
    preempts = row.preemption_policy != "Never"
    return Rung(row.name, row.value, row.state, row.message, row.global_default, preempts)


def _with_users(rungs: Iterable[Rung]) -> list[Rung]:
    names = [rung.name for rung in rungs]
    users = PriorityClassUser.objects.filter(priority_class__in=names).order_by().values("priority_class")
    counted = {
        each["priority_class"]: each
        for each in users.annotate(all=Sum("pods"), spaces=Count("namespace", distinct=True))
    }
    most = max((each["all"] for each in counted.values()), default=0)
    return [
        msgspec.structs.replace(
            rung, pods=each["all"], namespaces=each["spaces"], width=max(_BAR_WIDTH * each["all"] / most, _SHORTEST)
        )
        if (each := counted.get(rung.name)) and each["all"]
        else rung
        for rung in rungs
    ]
