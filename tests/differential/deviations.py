"""Where Berth answers otherwise than kube-scheduler v1.36.3 on purpose, each with the reason."""

from collections.abc import Sequence
from typing import Any

import msgspec

from policies.engine.filters.bound_volumes import OUT_OF_REACH, UNBOUND, WAITING
from policies.engine.objects.claims import claim_names
from policies.engine.objects.pod import Pod
from policies.engine.quantity import parse
from tests.differential.making.words import BEYOND

Json = dict[str, Any]

_RESOURCE_RULES = (
    "PodFitsResources",
    "LeastRequestedPriority",
    "MostRequestedPriority",
    "RequestedToCapacityRatioPriority",
    "NodeResourcesFit",
    "BalancedResourceAllocation",
)


# What kube-scheduler says of a node after it has accepted the Pod's claims (volumebinding/binder.go).
_OF_NODES = {
    OUT_OF_REACH.reason,
    "node(s) didn't find available persistent volumes to bind",
    "node(s) did not have enough free storage",
}


def is_deviation(case: Json, builtin: str) -> bool:
    """Return whether the rule's answers to the case may differ."""
    if not builtin.startswith(_RESOURCE_RULES):
        return False
    return any(map(_grows_when_asked, (case["pod"], *case.get("pods", ())))) or _is_beyond(case)


def is_refused_volume(code: str, reasons: Sequence[str], reason: str) -> bool:
    """Return whether Berth refuses a node for a volume where kube-scheduler needn't, or gives the Pod up.

    Berth binds no claims that wait for their first consumer. Of a claim whose class is missing, and of an in-tree volume that no
    CSI driver can have, kube-scheduler's plugin gives an error (volumebinding/binder.go): that ends the cycle for all nodes.

    Args:
        code: kube-scheduler's.
        reasons: kube-scheduler's.
        reason: Berth's.
    """
    if reason == WAITING.reason:
        return code == "Success" or set(reasons) <= _OF_NODES
    return code == "Error" and reason in {UNBOUND.reason, OUT_OF_REACH.reason}


def may_preempt_otherwise(case: Json) -> bool:
    """Return whether Berth's preemption may differ: nearly each is a room that kube-scheduler sees and that isn't there."""
    return (
        is_deviation(case, "PodFitsResources")
        or _frees_shared_ports(case)
        or _frees_shared_claims(case)
        or _counts_leaving_pods(case)
        or _counts_by_empty_selectors(case)
        or _passes_over_nominated_anti_affinity(case)
        or _passes_over_nominated_claims(case)
    )


def _frees_shared_ports(case: Json) -> bool:
    """Return whether Pods on one node take the same port of the host, so that kube-scheduler would preempt for nothing.

    framework/types.go, HostPortInfo, is a set: with one of the Pods it takes the port away for the others too, and sees
    it free although a Pod stays that has it. Only who sets nodeName by hand makes such nodes.
    """
    taken = set()
    for pod in case["pods"]:
        spec = pod.get("spec", {})
        for port in Pod.from_json(pod).host_ports:
            place = (spec.get("nodeName", ""), port)
            if place[0] and place in taken:
                return True
            taken.add(place)
    return False


def _frees_shared_claims(case: Json) -> bool:
    """Return whether several volumes are a claim that is for one Pod only, or others of its name in other namespaces.

    volumerestrictions/volume_restrictions.go counts the claim once, and takes it for free with the first Pod of those: its
    updateWithPod compares the names of claims and not their namespaces. With a Pod that has the claim as two volumes it
    subtracts two, so that another claim counts as free too.
    """
    used = _used_claims(case)
    return any(used.count(claim) > 1 for claim in _claims_for_one(case))


def _claims_for_one(case: Json) -> set[str]:
    return {
        claim["metadata"]["name"]
        for claim in case.get("persistentVolumeClaims", ())
        if "ReadWriteOncePod" in (claim.get("spec", {}).get("accessModes") or ())
    }


def _used_claims(case: Json) -> list[str]:
    """Return the names of the claims that Pods on nodes use, once for each volume."""
    return [
        name
        for pod in map(Pod.from_json, case["pods"])
        for name in claim_names(pod)
        if pod.spec.node_name and pod.is_live
    ]


def _passes_over_nominated_claims(case: Json) -> bool:
    """Return whether only Pods that are nominated to a node may use a claim of the Pod that is for one Pod only.

    volumerestrictions/volume_restrictions.go (PreFilter) gives Skip where no Pod on a node uses such a claim, and then isn't
    asked about nominated Pods either.
    """
    wanted = _claims_for_one(case).intersection(claim_names(Pod.from_json(case["pod"])))
    waiting = [Pod.from_json(pod) for pod in case["pods"] if not pod.get("spec", {}).get("nodeName")]
    nominated = [pod for pod in waiting if pod.parsed.status.nominated_node_name]
    return wanted.isdisjoint(_used_claims(case)) and any(wanted.intersection(claim_names(pod)) for pod in nominated)


def _passes_over_nominated_anti_affinity(case: Json) -> bool:
    """Return whether only a Pod that is nominated to a node may keep the Pod away by its anti-affinity.

    interpodaffinity/filtering.go (PreFilter) gives Skip where neither the Pod nor those on nodes have terms that count, and
    then isn't asked about nominated Pods either.
    """
    terms = Pod.from_json(case["pod"]).terms
    waiting = [Pod.from_json(pod) for pod in case["pods"] if not pod["spec"].get("nodeName")]
    return not (terms.required or terms.required_anti) and any(
        pod.terms.required_anti for pod in waiting if pod.parsed.status.nominated_node_name
    )


def _counts_leaving_pods(case: Json) -> bool:
    """Return whether a Pod on its way out may be a victim while Pods are spread.

    podtopologyspread/filtering.go doesn't count such Pods at first, and yet subtracts them when preemption takes them away
    (updateWithPod): it sees room that removing them doesn't make, and the Pod is nominated to a node where it doesn't fit.
    """
    constraints = case["pod"]["spec"].get("topologySpreadConstraints") or ()
    spreads = any(constraint["whenUnsatisfiable"] == "DoNotSchedule" for constraint in constraints)
    return spreads and any((pod.get("metadata") or {}).get("deletionTimestamp") for pod in case["pods"])


def _counts_by_empty_selectors(case: Json) -> bool:
    """Return whether Pods are spread by a selector without requirements.

    podtopologyspread/common.go, countPodsMatchSelector, counts no Pod by one, and updateWithPod all: a nominated Pod takes
    room that those on nodes don't take, and victims give back what they never took.
    """
    constraints = case["pod"]["spec"].get("topologySpreadConstraints") or ()
    hard = [found for found in constraints if found["whenUnsatisfiable"] == "DoNotSchedule"]
    return any(
        selector is not None and not (selector.get("matchLabels") or selector.get("matchExpressions"))
        for selector in (found.get("labelSelector") for found in hard)
    )


def _is_beyond(case: Json) -> bool:
    """Return whether a single request is more than 64 bits can hold.

    What kube-scheduler takes such a quantity for (0, or what is left of it in 64 bits, even negative scores, which fail
    the cycle) depends on whether it was compared with another one before: k8s.io/apimachinery v0.36.3
    pkg/api/resource/quantity.go, Cmp, changes the form of its operands.
    """
    text = msgspec.json.encode(case)
    return any(b'"%s"' % amount.encode() in text for amount in BEYOND)


def _grows_when_asked(pod: Json) -> bool:
    """Return whether kube-scheduler changes the Pod whenever it adds up what the Pod asks for.

    k8s.io/component-helpers v0.36.3 resource/helpers.go, PodRequests, puts the pod-level quantity itself into the sum
    and then adds the overhead to it. A quantity that doesn't fit Go's 64-bit form (1.5Gi) is held by a pointer, so the overhead
    is added to the Pod's own spec, once more with each call: the answer depends on how many plugins asked before.
    """
    spec = pod.get("spec", {})
    pod_level = (spec.get("resources") or {}).get("requests") or {}
    overhead = spec.get("overhead") or {}
    return any(parse(pod_level[name]).big for name in pod_level if name in overhead)
