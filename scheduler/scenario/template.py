"""The template of Pods: from the manifest of a Pod or of a workload."""

from collections.abc import Mapping
from typing import Any

import msgspec

from policies.engine.errors import ObjectError, QuantityError
from policies.engine.objects.pod import Pod
from scheduler.scenario.errors import ScenarioError
from scheduler.scenario.pod_defaults import as_made

_TEMPLATED = ("Deployment", "ReplicaSet", "StatefulSet", "ReplicationController", "DaemonSet", "Job")
_HASH = "pod-template-hash"


class Template(msgspec.Struct, frozen=True, kw_only=True):
    """The template of Pods: the JSON of one, and a prefix for names. `running` of them have a node already.

    With `is_pod` it is for a single Pod under its own name, which rules may read.
    """

    name: str
    pod: Mapping[str, Any]
    running: int = 0
    is_pod: bool = False

    def pods(self, number: int) -> list[Pod]:
        """Make this many Pods.

        Raises:
            ScenarioError: they would be no valid Pods.
        """
        try:
            pods = [Pod.from_json(self._json(index, number)) for index in range(1, number + 1)]
            # Read here, for its faults: nothing else reads the limits before the rules do.
            _ = pods and pods[0].is_best_effort
        except (ObjectError, QuantityError) as error:
            message = f"the template makes no Pod: {error}"
            raise ScenarioError(message) from error
        # The API server refuses negative requests; counted, they would make room on a node.
        for name, amount in pods[0].requests.amounts.items() if pods else ():
            if amount < 0:
                message = f"the template makes no Pod: it requests less than nothing of {name}"
                raise ScenarioError(message)
        return pods

    def _json(self, index: int, number: int) -> dict[str, Any]:
        numbered = f"{self.name}-scenario-{index}"
        name = self.name if self.is_pod and number == 1 else numbered
        metadata = {**self.pod["metadata"], "name": name, "uid": numbered}
        return {**self.pod, "metadata": metadata}


def template_of(document: object) -> Template:
    """Return the template in a manifest: of a Pod, or of a workload.

    Raises:
        ScenarioError: there is none.
    """
    if not isinstance(document, dict):
        message = "the manifest is no object: give a Pod, or a Deployment"
        raise ScenarioError(message)
    kind = document.get("kind", "Pod")
    metadata = _member(document, "metadata")
    namespace = str(metadata.get("namespace") or "default")
    if kind == "Pod":
        made = make_template(str(metadata.get("name") or "pod"), namespace, document)
        return msgspec.structs.replace(made, is_pod=True)
    if kind not in _TEMPLATED:
        message = f"a {kind} makes no Pods: give a Pod, or one of {', '.join(_TEMPLATED)}"
        raise ScenarioError(message)
    name = str(metadata.get("name") or kind.lower())
    template = _member(_member(document, "spec"), "template")
    owner, labels = {"kind": kind, "name": name}, {}
    if kind == "Deployment":
        # A Deployment makes its Pods by a ReplicaSet, which is named after a hash that is also a label of the Pods.
        owner, labels = {"kind": "ReplicaSet", "name": f"{name}-scenario"}, {_HASH: "scenario"}
    uid = str(metadata.get("uid") or "scenario")
    return make_template(name, namespace, template, labels, {"apiVersion": "apps/v1", "uid": uid, **owner})


def _member(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = document.get(name)
    if not isinstance(found, dict):
        message = f"{name} is missing from the manifest, or no object"
        raise ScenarioError(message)
    return found


def make_template(
    name: str,
    namespace: str,
    document: Mapping[str, Any],
    labels: Mapping[str, str] | None = None,
    owner: Mapping[str, Any] | None = None,
    running: int = 0,
) -> Template:
    """Return the template of Pods with this metadata and spec, as the API server would complete them.

    Args:
        name: the prefix of the Pods' names.
        namespace: theirs.
        document: has the metadata and the spec.
        labels: more of them, which a controller adds.
        owner: the controller; None for the document's own ownerReferences.
        running: how many of the Pods have a node already.

    Raises:
        ScenarioError: metadata, labels or spec are no objects, or something in them can't be sent to an API server.
    """
    metadata = document.get("metadata") or {}
    if not isinstance(metadata, dict):
        message = "metadata is no object"
        raise ScenarioError(message)
    made: dict[str, Any] = {"namespace": namespace, "labels": {**_labels(metadata), **(labels or {})}}
    if metadata.get("annotations"):
        made["annotations"] = metadata["annotations"]
    if owner is not None:
        made["ownerReferences"] = [{**owner, "controller": True}]
    elif metadata.get("ownerReferences"):
        made["ownerReferences"] = metadata["ownerReferences"]
    given = {key: value for key, value in _member(document, "spec").items() if key != "nodeName"}
    spec = as_made(given, made["labels"])
    pod = {"metadata": made, "spec": spec}
    try:
        msgspec.msgpack.encode(pod)
    except (UnicodeEncodeError, OverflowError) as error:
        message = "the manifest holds half of a character (a lone surrogate), or a number of more than 64 bits"
        raise ScenarioError(message) from error
    return Template(name=name, pod=pod, running=running)


def _labels(metadata: Mapping[str, Any]) -> dict[str, Any]:
    found = metadata.get("labels") or {}
    if not isinstance(found, dict):
        message = "metadata.labels is no object"
        raise ScenarioError(message)
    return found
