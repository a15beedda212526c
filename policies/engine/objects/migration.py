"""In-tree volumes on nodes where a CSI driver has replaced their plugin: which nodes reach them.

Sources: kube-scheduler v1.36.3 framework/plugins/volumebinding/binder.go (tryTranslatePVToCSI); k8s.io/csi-translation-lib
v0.36.3 plugins/in_tree_volume.go (translateTopologyFromInTreeToCSI), and who calls it.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from policies.engine.objects.cluster_kinds import PersistentVolume
from policies.engine.objects.volumes import VolumeSource
from policies.engine.selectors import NodeSelector, NodeSelectorTerm, Requirement

# By the field that describes a volume. Azure's and Portworx' volumes keep their affinity as it is.
_PLUGIN_OF = {
    "gce_persistent_disk": "kubernetes.io/gce-pd",
    "aws_elastic_block_store": "kubernetes.io/aws-ebs",
    "cinder": "kubernetes.io/cinder",
    "azure_disk": "kubernetes.io/azure-disk",
    "portworx_volume": "kubernetes.io/portworx-volume",
}
_ZONE_OF_DRIVER = {
    "kubernetes.io/gce-pd": "topology.gke.io/zone",
    "kubernetes.io/aws-ebs": "topology.ebs.csi.aws.com/zone",
    "kubernetes.io/cinder": "topology.cinder.csi.openstack.org/zone",
}


class _Labels(NamedTuple):
    zone: str
    region: str


_STABLE = _Labels("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
_BETA = _Labels("failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region")
_ZONES_APART = "__"


def plugin_of(source: VolumeSource) -> str:
    """Return the in-tree plugin of a volume that a CSI driver may have replaced; empty for any other volume."""
    return next((name for field, name in _PLUGIN_OF.items() if getattr(source, field) is not None), "")


def affinity_of(volume: PersistentVolume) -> NodeSelector | None:
    """Return the node affinity of a volume."""
    affinity = volume.spec.node_affinity
    return affinity.required if affinity is not None else None


def migrated_affinity_of(volume: PersistentVolume) -> NodeSelector | None:
    """Return the affinity of a volume for nodes that have the CSI driver: with the driver's zone label in place of Kubernetes'."""
    required = affinity_of(volume)
    zone = _ZONE_OF_DRIVER.get(plugin_of(volume.spec))
    if zone is None:
        return required
    terms = (required.node_selector_terms if required is not None else None) or []
    labels = _labels_of({key for key, _ in _asked(terms)}, volume.labels)
    valued = {key for key, values in _asked(terms) if values}
    names = {labels.region: _STABLE.region} if labels.region in valued else {}
    if labels.zone in valued:
        return NodeSelector(_renamed(terms, names | {labels.zone: zone}))
    zones = sorted({each.strip() for each in volume.labels.get(labels.zone, "").split(_ZONES_APART)} - {""})
    renamed = _renamed(terms, names)
    return NodeSelector(_with(Requirement(zone, "In", zones), renamed)) if zones else required and NodeSelector(renamed)


def _asked(terms: Sequence[NodeSelectorTerm]) -> list[tuple[str, list[str]]]:
    return [(asked.key, asked.values or []) for term in terms for asked in term.match_expressions or ()]


def _labels_of(asked: Collection[str], labels: Mapping[str, str]) -> _Labels:
    """Return the labels that locate a volume: those that its affinity names, or else its own."""
    return next((each for named in (asked, labels) for each in (_STABLE, _BETA) if each.zone in named), _STABLE)


def _renamed(terms: Sequence[NodeSelectorTerm], names: Mapping[str, str]) -> list[NodeSelectorTerm]:
    def rename(asked: Requirement) -> Requirement:
        return msgspec.structs.replace(asked, key=names.get(asked.key, asked.key))

    return [
        msgspec.structs.replace(term, match_expressions=[rename(asked) for asked in term.match_expressions or ()])
        for term in terms
    ]


def _with(zone: Requirement, terms: Sequence[NodeSelectorTerm]) -> list[NodeSelectorTerm]:
    return [
        msgspec.structs.replace(term, match_expressions=[*(term.match_expressions or ()), zone])
        for term in terms or [NodeSelectorTerm()]
    ]
