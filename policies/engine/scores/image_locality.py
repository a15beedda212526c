"""Nodes that have the Pod's images."""

import numpy as np

from policies.engine.objects.pod_spec import PodSpec
from policies.engine.objects.table import Numbers, Rows
from policies.engine.rule import Cycle, Scope, Score
from policies.engine.scores.arithmetic import MAX_SCORE, divide

_MIB = 1024 * 1024
LEAST_BYTES = 23 * _MIB
MOST_BYTES_PER_CONTAINER = 1000 * _MIB


class ImageLocalityPriority(Score):
    """Nodes score by how many bytes of the Pod's images they have already.

    The sum over images of containers, init containers and image volumes of int(size x nodes that have it / all
    nodes), clamped to between 23 MiB and 1000 MiB x containers, is mapped to 0..100 by integer division. A name
    without a tag gets `:latest`; names are compared as they are written, without a default registry. The size
    is the one that the node reports; kube-scheduler uses the size from the first node on which it saw the image.

    Source: kube-scheduler v1.36.3 framework/plugins/imagelocality/image_locality.go.
    """

    scope = Scope.NODE

    def score(self, cycle: Cycle, rows: Rows) -> Numbers:
        """Add up the images' sizes, each by how widely it is spread."""
        spec, table = cycle.pod.spec, cycle.table
        images = [found for found in map(table.images().find, _images(spec)) if len(found.rows)]
        if not images:
            return np.zeros(len(rows), dtype=np.int64)
        total = np.zeros(len(table), dtype=np.int64)
        for found in images:
            spread = float(len(found.rows)) / float(len(table))
            total[found.rows] += (found.sizes.astype(np.float64) * spread).astype(np.int64)
        containers = len(spec.containers or ()) + len(spec.init_containers or ())
        most = MOST_BYTES_PER_CONTAINER * containers
        total = total[rows]
        total = np.where(total < LEAST_BYTES, LEAST_BYTES, np.where(total > most, most, total))
        return divide(MAX_SCORE * (total - LEAST_BYTES), np.int64(most - LEAST_BYTES))


def _images(spec: PodSpec) -> list[str]:
    names = [container.image for container in (*(spec.init_containers or ()), *(spec.containers or ()))]
    names += [volume.image.reference for volume in spec.volumes or () if volume.image]
    return [name if name.rfind(":") > name.rfind("/") else f"{name}:latest" for name in names]
