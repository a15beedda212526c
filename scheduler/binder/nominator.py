"""Preemption as the loop performs it: when to look for victims, and how long to wait until they leave.

After a decision, it takes a moment until the watch shows the victims leaving, and until then nothing shows that room is being made.
A Pod that is retried in that moment would remove more Pods. So this module remembers the preemption.
"""

from collections.abc import Callable, Collection

from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.preemption.dry_run import Preemption, Search, search
from policies.engine.rule import Cycle, go_on
from scheduler.binder.cycle import BUDGETS, Placement


class Nominator:
    """The preemptions that were begun, and the nodes that are kept free. For one thread."""

    def __init__(self) -> None:
        self._begun: dict[str, Preemption] = {}
        self._nominations: dict[str, tuple[str, Pod]] = {}
        self._gave_back = False
        self._searches = 0
        # By the preemptor's UID: the UIDs of the victims that the API server refused to delete.
        self._kept: dict[str, set[str]] = {}
        # The Pods nominated to each node, by the node's name. Replaced by a new dict at each change.
        self.nominated: dict[str, list[Pod]] = {}

    def nominate(self, uid: str, node_name: str, pod: Pod | None = None, *, placed_on: str = "") -> None:
        """Note a waiting Pod's nominated node; "" for none. `placed_on` is the node where the Pod is counted from now on."""
        known = self._nominations.pop(uid, None)
        if known is not None and known[0] not in {node_name, placed_on}:
            self._gave_back = True
        if pod is not None and node_name:
            self._nominations[uid] = (node_name, pod)
        if known is None and not node_name:
            return
        nominated: dict[str, list[Pod]] = {}
        for name, other in self._nominations.values():
            nominated.setdefault(name, []).append(other)
        self.nominated = nominated

    def gave_room_back(self) -> bool:
        """Return whether a nomination ended since the last call: other Pods may fit on that node now."""
        gave_back, self._gave_back = self._gave_back, False
        return gave_back

    def begin(self, pod: Pod, preemption: Preemption) -> None:
        """Note that the preemption's victims are being removed for the Pod."""
        self._begun[pod.uid] = preemption

    def end(self, uid: str) -> None:
        """Note that no more victims are being removed for a Pod."""
        self._begun.pop(uid, None)

    def keep(self, uid: str, victim_uid: str) -> None:
        """Note that the API server refuses to delete a Pod's victim. It is spared until no node can be freed without it."""
        self._kept.setdefault(uid, set()).add(victim_uid)

    def forget(self, uid: str) -> None:
        """Note that a Pod no longer waits."""
        self.end(uid)
        self._kept.pop(uid, None)
        self.nominate(uid, "")

    def is_under_way(self, uid: str, snapshot: Snapshot) -> bool:
        """Return whether some of a Pod's victims have not been seen leaving yet."""
        begun = self._begun.get(uid)
        if begun is None:
            return False
        info = snapshot.node(begun.node)
        victims = {victim.uid for victim in begun.victims}
        if info is not None and any(pod.uid in victims and not pod.is_deleting for pod in info.pods):
            return True
        self.end(uid)
        return False

    def _is_being_freed(self, node_name: str, snapshot: Snapshot) -> bool:
        """Return whether victims of any Pod have not been seen leaving a node yet.

        Two Pods that are nominated to one node each count with the other's place, so neither fits until all victims have left.
        """
        begun = [uid for uid, preemption in self._begun.items() if preemption.node == node_name]
        return any(self.is_under_way(uid, snapshot) for uid in begun)

    def search(
        self,
        placement: Placement,
        nominated: str,
        give_way: Callable[[], None] = go_on,
        *,
        denied: Collection[str] = (),
    ) -> Search | None:
        """Look for a node to free for an unschedulable Pod.

        Args:
            placement: the cycle that found no node.
            nominated: the Pod's previous nominated node; "" for none.
            give_way: as for a Cycle.
            denied: the names of the nodes that denied the Pod's binding.

        Returns:
            None when there is nothing to do: nothing was decided, victims are about to leave, or budgets aren't listed yet.
        """
        judged, snapshot = placement.enforced, placement.snapshot
        objects = snapshot.knowing(BUDGETS)
        if judged is None or objects is None or self.is_under_way(placement.pod.uid, snapshot):
            return None
        if self._is_being_freed(nominated, snapshot):
            return None
        self._searches += 1
        found = search(
            cycle=Cycle(pod=placement.pod, snapshot=snapshot, now=placement.now, give_way=give_way),
            rule_set=judged.rule_set,
            budgets=(budget for group in objects.disruption_budgets.values() for budget in group.values()),
            answer=judged.answer,
            offset=self._searches,
            nomination=nominated,
            kept=self._kept.get(placement.pod.uid, ()),
            denied=denied,
        )
        if found.preemption is None:  # next time, spared victims are candidates again
            self._kept.pop(placement.pod.uid, None)
        return found
