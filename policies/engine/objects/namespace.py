"""A Namespace, with the fields that rules read. Source: Kubernetes v1.36.3 pkg/apis/core/types.go (Namespace)."""

import msgspec

from policies.engine.errors import ObjectError
from policies.engine.objects.cluster_kinds import LabelledMetadata
from policies.engine.objects.metadata import convert_object


class Namespace(msgspec.Struct, frozen=True, gc=False):
    """A Namespace: only its name and labels."""

    metadata: LabelledMetadata = LabelledMetadata()

    @classmethod
    def from_json(cls, json: object) -> "Namespace":
        """Make a Namespace of decoded Kubernetes JSON.

        Raises:
            ObjectError: it has no name, or a field has the wrong type; the message says which.
        """
        if not isinstance(json, dict):
            message = f"a Namespace is an object, not {type(json).__name__}"
            raise ObjectError(message)
        try:
            found = convert_object(json, cls)
        except msgspec.ValidationError as error:
            message = f"Namespace: {error}"
            raise ObjectError(message) from error
        if not found.metadata.name:
            message = "Namespace: needs a name, as metadata.name"
            raise ObjectError(message)
        return found
