"""Arguments of plugins."""

from tests.differential.making.maker import Maker
from tests.differential.making.words import EXTENDED, ZONE, Json


class Arguments(Maker):
    """Makes what a KubeSchedulerConfiguration may say."""

    def arguments(self) -> Json:
        random = self.random
        arguments: Json = {}
        if self.chance(0.3):
            arguments["NodeResourcesFit"] = {
                "ignoredResources": self.some(EXTENDED[1:], 1),
                "ignoredResourceGroups": self.some(["example.com", "vendor.io"], 1),
            }
        resources = [
            {"name": name, "weight": random.choice([1, 1, 2, 3, 5, 100])}
            for name in self.some(["cpu", "memory", "ephemeral-storage", "example.com/gpu", "hugepages-2Mi"], 4, 1)
        ]
        for strategy in ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"):
            if self.chance(0.5):
                scoring: Json = {"type": strategy, "resources": resources}
                if strategy == "RequestedToCapacityRatio":
                    scoring["requestedToCapacityRatio"] = {"shape": self.shape()}
                arguments[f"NodeResourcesFit:{strategy}"] = {"scoringStrategy": scoring}
        if self.chance(0.4):
            evenly = [{"name": resource["name"], "weight": 1} for resource in resources]
            arguments["NodeResourcesBalancedAllocation"] = {"resources": evenly}
        if self.chance(0.4):
            arguments["InterPodAffinity"] = {
                "ignorePreferredTermsOfExistingPods": self.chance(0.3),
                "hardPodAffinityWeight": random.choice([0, 1, 5, 100]),
            }
        if self.chance(0.2):
            term = {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}
            preference = {"weight": 20, "preference": {"matchExpressions": [{"key": "rack", "operator": "Exists"}]}}
            arguments["NodeAffinity"] = {
                "addedAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]},
                    "preferredDuringSchedulingIgnoredDuringExecution": [preference],
                }
            }
        if self.chance(0.3):
            defaults = [{"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": action} for key, action in (
                (ZONE, random.choice(["DoNotSchedule", "ScheduleAnyway"])), ("rack", "ScheduleAnyway"),
            )]  # fmt: skip
            arguments["PodTopologySpread"] = {"defaultingType": "List", "defaultConstraints": defaults}
        return arguments

    def shape(self) -> list[Json]:
        utilizations = sorted(self.some(list(range(0, 101, 5)), 4, 1))
        return [{"utilization": utilization, "score": self.random.randint(0, 10)} for utilization in utilizations]
