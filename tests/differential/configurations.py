"""Makes KubeSchedulerConfigurations at random: about half of them keep kube-scheduler from starting, each in few places."""

import random
from collections.abc import Callable, Sequence
from typing import Any

from policies.profiles import PLUGINS
from scheduler.doctor.shape import API_VERSION, KIND

Json = dict[str, Any]

_POINTS = (
    "preEnqueue", "queueSort", "preFilter", "filter", "postFilter", "preScore", "score", "reserve", "permit", "preBind",
    "bind", "postBind", "multiPoint", "placementGenerate", "placementScore",
)  # fmt: skip
# Beside their own plugins, points get some of these.
_OF_A_POINT = {
    "preEnqueue": ["SchedulingGates"], "queueSort": ["PrioritySort"], "bind": ["DefaultBinder"], "reserve": ["VolumeBinding"],
    "filter": ["NodeName", "NodeResourcesFit"], "score": ["ImageLocality", "NodeResourcesFit", "TaintToleration"],
    "postFilter": ["DefaultPreemption"], "placementScore": ["PodGroupPodsCount", "NodeResourcesFit"],
    "placementGenerate": ["TopologyPlacementGenerator"], "permit": ["GangScheduling"], "preBind": ["DynamicResources"],
}  # fmt: skip
_KEYS = ("zone", "example.com/rack", "kubernetes.io/hostname")
_BAD_KEYS = ("", "a b", "/x", "-a", "a/b/c", "x" * 64, "UPPER.com/a")
_RESOURCES = ("cpu", "memory", "example.com/gpu")


class Maker:
    """Makes one configuration. `trouble` is how often a value is one that kube-scheduler refuses."""

    def __init__(self, seed: object, trouble: float = 0.04) -> None:
        self._random = random.Random(str(seed))
        self._trouble = trouble

    def configuration(self) -> Json:
        """Return a whole file."""
        made: Json = {"apiVersion": API_VERSION, "kind": KIND, "clientConnection": {"kubeconfig": "kubeconfig"}}
        made |= self._some(
            parallelism=self._of([1, 16, None], [0, -1]),
            percentageOfNodesToScore=self._of([0, 50, 100, None], [-1, 101]),
            podInitialBackoffSeconds=self._of([1, 2, None], [0, -1, 11]),
            podMaxBackoffSeconds=self._of([10, 20, None], [0, -1]),
            leaderElection=self._election(),
            enableProfiling=self._of([True, None], ["true"]),
        )
        if self._chance(0.1):
            made["clientConnection"]["burst"] = self._of([0, 5], [-1])
        if self._chance(0.9):
            made["profiles"] = self._profiles()
        if self._chance(0.5):
            made["extenders"] = [self._extender(index) for index in range(self._count(3))]
        return made

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def _count(self, most: int) -> int:
        return self._random.randint(0, most)

    def _of(self, good: Sequence[Any], bad: Sequence[Any]) -> Any:
        return self._random.choice(bad if self._chance(self._trouble) else good)

    def _some(self, **members: Any) -> Json:
        return {name: value for name, value in members.items() if self._chance(0.25)}

    def _election(self) -> Json:
        return self._some(
            leaderElect=self._of([True, False], ["yes please"]),
            leaseDuration=self._of(["15s", "20s", "0s", None], ["-1s", "5s", "10s", "3"]),
            renewDeadline=self._of(["10s", "5s", "0s"], ["-1s", "15s", "1h"]),
            retryPeriod=self._of(["2s", "0s", "1s"], ["-1s"]),
            resourceLock=self._of(["leases", ""], ["endpoints", "Leases"]),
            resourceName=self._of(["any", ""], [1]),
        )

    def _profiles(self) -> list[Json]:
        names = self._random.sample(["default-scheduler", "b", "c"], self._random.choice([1, 1, 1, 2, 2, 3]))
        if self._chance(self._trouble):
            names[-1] = self._random.choice(["", names[0], None])
        made = [{"schedulerName": name} | self._profile() for name in names]
        if len(made) == 1 and self._chance(0.3):
            del made[0]["schedulerName"]
        return made

    def _profile(self) -> Json:
        made = self._some(percentageOfNodesToScore=self._of([0, 50, 100, None], [-1, 101]))
        if self._chance(0.5):
            made["plugins"] = self._plugins()
        if self._chance(0.6):
            made["pluginConfig"] = self._plugin_config()
        return made

    def _plugins(self) -> Json:
        made: Json = {}
        for point in self._random.sample(_POINTS, self._random.choice([1, 1, 2, 3])):
            made[point] = self._plugin_set(point)
        return made

    def _plugin_set(self, point: str) -> Json:
        own = list(PLUGINS) if point == "multiPoint" else _OF_A_POINT.get(point, [])
        enabled = self._random.sample(own, min(len(own), self._count(2)))
        if self._chance(self._trouble * 2):
            enabled.append(
                self._random.choice([*PLUGINS, *enabled, *enabled, "", "NodeResourceFit", "EBSLimits", "Coscheduling"])
            )
        disabled = self._random.sample(sorted(PLUGINS), self._count(2))
        if self._chance(0.9):
            disabled = [name for name in disabled if name not in {"PrioritySort", "DefaultBinder"}]
        if self._chance(0.1):
            disabled = ["*"]
        return self._some_of({
            "enabled": [{"name": name} | self._some(weight=self._of([0, 1, 5, 100], [-1, 2147483648, "1"])) for name in enabled],
            "disabled": [{"name": name} for name in disabled],
        })  # fmt: skip

    def _some_of(self, members: Json) -> Json:
        return {name: value for name, value in members.items() if value or self._chance(0.1)}

    def rule_arguments(self) -> Json:
        """Return the entry of pluginConfig for a plugin that becomes rules."""
        makers = self._rule_makers
        name = self._random.choice(sorted(makers))
        return {"name": name, "args": makers[name]()}

    @property
    def _rule_makers(self) -> dict[str, Callable[[], Json]]:
        return {
            "InterPodAffinity": self._inter_pod, "NodeAffinity": self._node_affinity, "NodeResourcesFit": self._fit,
            "NodeResourcesBalancedAllocation": self._balanced, "PodTopologySpread": self._spread,
        }  # fmt: skip

    def _plugin_config(self) -> list[Json]:
        makers = self._rule_makers | {
            "DefaultPreemption": self._preemption, "DynamicResources": self._dynamic, "VolumeBinding": self._volume,
        }  # fmt: skip
        names = self._random.sample(sorted(makers), self._random.choice([1, 1, 2, 4]))
        if self._chance(self._trouble):
            names.append(
                self._random.choice([names[0], "EBSLimits", "NodeResourcesFitArgs", "Coscheduling", "ImageLocality"])
            )
        made = []
        for name in names:
            args: Any = makers[name]() if name in makers else {"any": 1}
            if name in makers and self._chance(0.1):
                args |= self._some(
                    kind=self._of([f"{name}Args"], ["Other", ""]), apiVersion=self._of([API_VERSION], ["v1", ""])
                )
            if self._chance(self._trouble / 2):
                args = self._random.choice([None, [], "text", {"any": 1}])
            made.append({"name": name, "args": args})
        if self._chance(self._trouble / 2):
            del made[0]["args"]
        return made

    def _preemption(self) -> Json:
        return self._some(
            minCandidateNodesPercentage=self._of([0, 10, 100, None], [-1, 101, "1"]),
            minCandidateNodesAbsolute=self._of([1, 100, None], [0, -1]),
        )

    def _dynamic(self) -> Json:
        return self._some(
            filterTimeout=self._of(["10s", "0s", None], ["-1s", 10]),
            bindingTimeout=self._of(["600s", "1s", None], ["0s", "999ms", "-1s"]),
        )

    def _inter_pod(self) -> Json:
        return self._some(
            hardPodAffinityWeight=self._of([0, 1, 100, None], [-1, 101, 1.5]),
            ignorePreferredTermsOfExistingPods=self._of([True, False], ["true", 1]),
        )

    def _node_affinity(self) -> Json:
        required = {"nodeSelectorTerms": [self._term() for _ in range(self._count(2))]}
        preferred = [
            {"weight": self._of([1, 100], [0, -1, 101]), "preference": self._term()} for _ in range(self._count(2))
        ]
        affinity = self._some(
            requiredDuringSchedulingIgnoredDuringExecution=required,
            preferredDuringSchedulingIgnoredDuringExecution=preferred,
        ) | ({"any": 1} if self._chance(self._trouble) else {})
        return {"addedAffinity": affinity}

    def _term(self) -> Json:
        made: Json = {}
        if self._chance(0.8):
            made["matchExpressions"] = [self._requirement() for _ in range(self._random.choice([1, 1, 2]))]
        if self._chance(0.3):
            values = self._of([["n1"]], [[], ["a", "b"], None])
            operator = self._of(["In", "NotIn"], ["Exists", "", "Gt"])
            made["matchFields"] = [
                {"key": self._of(["metadata.name"], ["any", ""]), "operator": operator, "values": values}
            ]
        return made

    def _requirement(self) -> Json:
        operator = self._of(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"], ["", "in", "Equals"])
        good = {"Exists": [[], None], "DoesNotExist": [[], None], "Gt": [["1"], ["-5"], ["+5"]], "Lt": [["2"]]}.get(
            operator, [["a"], ["a", ""]]
        )
        bad = [[], ["a"], ["1", "2"], ["a b"], ["x" * 64], [1], ["9" * 20], ["1_0"], [" 1"], None]
        return {"key": self._of(_KEYS, _BAD_KEYS), "operator": operator, "values": self._of(good, bad)}

    def _balanced(self) -> Json:
        return {"resources": [{"name": name, "weight": self._of([1, 0, None], [2, -1])} for name in self._resources()]}

    def _resources(self) -> list[str]:
        names = self._random.sample(_RESOURCES, self._count(2))
        return [*names, names[0]] if names and self._chance(self._trouble) else names

    def _fit(self) -> Json:
        made = self._some(
            ignoredResources=[self._of(_KEYS, _BAD_KEYS)],
            ignoredResourceGroups=[self._of(["example.com", "a.b"], ["a/b", "", "a b"])],
        )
        if self._chance(0.7):
            kind = self._of(["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"], ["", "Most", None])
            strategy: Json = {
                "type": kind,
                "resources": [
                    {"name": name, "weight": self._of([0, 1, 100, None], [-1, 101])} for name in self._resources()
                ],
            }
            if self._chance(1 - self._trouble if kind == "RequestedToCapacityRatio" else self._trouble):
                strategy["requestedToCapacityRatio"] = self._of([{"shape": self._shape()}], [{}, None])
            if self._chance(self._trouble):
                del strategy["type"]
            made["scoringStrategy"] = self._of([strategy], [{}, None, strategy | {"any": 1}])
        return made

    def _shape(self) -> list[Json]:
        places = sorted(self._random.sample(range(0, 101, 10), self._random.choice([1, 2, 3])))
        if self._chance(self._trouble):
            places = self._random.choice([[], [10, 10], [20, 10], [-1], [101]])
        return [{"utilization": each, "score": self._of([0, 5, 10], [-1, 11, 2.5, None])} for each in places]

    def _spread(self) -> Json:
        constraints = [
            {"maxSkew": self._of([1, 5], [0, -1]), "topologyKey": self._of(_KEYS, _BAD_KEYS),
             "whenUnsatisfiable": self._of(["DoNotSchedule", "ScheduleAnyway"], ["", "Never"])}
            | ({"labelSelector": {}} if self._chance(self._trouble) else {})
            | ({"minDomains": self._random.choice([-1, 2])} if self._chance(0.1) else {})
            for _ in range(self._random.choice([1, 1, 2]))
        ]  # fmt: skip
        kind = self._of(["List"], ["System", "", "Lists", None])
        return self._random.choice(
            [{}, {"defaultingType": "System"}, {"defaultingType": kind, "defaultConstraints": constraints}]
        )

    def _volume(self) -> Json:
        return self._some(bindTimeoutSeconds=self._of([0, 600, None], [-1, 1.5])) | (
            {"shape": self._random.choice([[], [{"utilization": 0, "score": 0}], None])}
            if self._chance(self._trouble)
            else {}
        )

    def _extender(self, index: int) -> Json:
        made: Json = {"urlPrefix": f"http://127.0.0.1:{8010 + index}", "filterVerb": "filter"}
        made |= self._some(
            bindVerb="bind", httpTimeout=self._of(["3s", "0s", "-1s"], ["3", 3]), nodeCacheCapable=True, ignorable=True
        )
        if self._chance(0.5):
            made |= {"prioritizeVerb": "prioritize", "weight": self._of([1, 5], [0, -1, None])}
        if self._chance(0.3):
            name = self._of([f"example.com/r{index}"], ["cpu", "a.kubernetes.io/b", "example.com/r0", ""])
            made["managedResources"] = [{"name": name} | self._some(ignoredByScheduler=True)]
        return made
