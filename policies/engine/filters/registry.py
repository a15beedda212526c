"""The built-in filters, by their classic names and by the names of kube-scheduler's plugins."""

from policies.engine.filters.inter_pod_affinity import MatchInterPodAffinity
from policies.engine.filters.max_replicas import MaxReplicasPerDomain
from policies.engine.filters.node_affinity import MatchNodeSelector
from policies.engine.filters.node_conditions import (
    CheckNodeCondition,
    CheckNodeDiskPressure,
    CheckNodeMemoryPressure,
    CheckNodePIDPressure,
    CheckNodeUnschedulable,
)
from policies.engine.filters.node_labels import CheckNodeLabelPresence, ServiceAffinity
from policies.engine.filters.node_name import PodFitsHost
from policies.engine.filters.node_ports import PodFitsHostPorts
from policies.engine.filters.node_resources import PodFitsResources
from policies.engine.filters.pod_topology_spread import EvenPodsSpread
from policies.engine.filters.taint_toleration import PodToleratesNodeTaints
from policies.engine.filters.volume_limits import MaxVolumeCount
from policies.engine.filters.volume_restrictions import NoDiskConflict
from policies.engine.filters.volume_zone import NoVolumeZoneConflict
from policies.engine.rule import Filter

# Other name -> the classic name.
FILTER_ALIASES: dict[str, str] = {
    "HostName": "PodFitsHost",
    "InterPodAffinity": "MatchInterPodAffinity",
    "MaxAzureDiskVolumeCount": "MaxVolumeCount",
    "MaxCSIVolumeCountPred": "MaxVolumeCount",
    "MaxCinderVolumeCount": "MaxVolumeCount",
    "MaxEBSVolumeCount": "MaxVolumeCount",
    "MaxGCEPDVolumeCount": "MaxVolumeCount",
    "NodeAffinity": "MatchNodeSelector",
    "NodeLabel": "CheckNodeLabelPresence",
    "NodeName": "PodFitsHost",
    "NodePorts": "PodFitsHostPorts",
    "NodeResourcesFit": "PodFitsResources",
    "NodeUnschedulable": "CheckNodeUnschedulable",
    "NodeVolumeLimits": "MaxVolumeCount",
    "PodFitsPorts": "PodFitsHostPorts",
    "PodSelectorMatches": "MatchNodeSelector",
    "PodTopologySpread": "EvenPodsSpread",
    "TaintToleration": "PodToleratesNodeTaints",
    "VolumeRestrictions": "NoDiskConflict",
    "VolumeZone": "NoVolumeZoneConflict",
}

_CLASSIC: dict[str, type[Filter]] = {
    made.__name__: made
    for made in (
        CheckNodeCondition,
        CheckNodeDiskPressure,
        CheckNodeLabelPresence,
        CheckNodeMemoryPressure,
        CheckNodePIDPressure,
        CheckNodeUnschedulable,
        EvenPodsSpread,
        MatchInterPodAffinity,
        MatchNodeSelector,
        MaxReplicasPerDomain,
        MaxVolumeCount,
        NoDiskConflict,
        NoVolumeZoneConflict,
        PodFitsHost,
        PodFitsHostPorts,
        PodFitsResources,
        PodToleratesNodeTaints,
        ServiceAffinity,
    )
}

_VOLUME_BINDING = (
    "kube-scheduler checks and binds volumes itself (its plugin VolumeBinding), and Berth's own scheduler refuses Pods whose "
    "claims aren't bound: leave it out"
)

# Classic name without a built-in -> what to use instead.
NO_BUILTIN: dict[str, str] = {
    "CheckVolumeBinding": _VOLUME_BINDING,
    "NoVolumeNodeConflict": _VOLUME_BINDING,
    "VolumeBinding": _VOLUME_BINDING,
    "GeneralPredicates": "write what it stood for: PodFitsResources, PodFitsHost, PodFitsHostPorts, MatchNodeSelector",
}

# Name -> class with an `Arguments` struct, made with an instance of it.
BUILTIN_FILTERS: dict[str, type[Filter]] = _CLASSIC | {alias: _CLASSIC[name] for alias, name in FILTER_ALIASES.items()}
