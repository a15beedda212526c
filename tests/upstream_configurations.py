"""KubeSchedulerConfigurations from Kubernetes' documentation, with real plugins in place of its invented ones.

Source: kubernetes.io, Scheduler Configuration, Resource Bin Packing, Pod Topology Spread Constraints (cluster-level defaults) and
Assigning Pods to Nodes (node affinity per scheduling profile), v1.36. The expected results: plugins in order, scores with weights.
"""

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"

SCORING = """
profiles:
  - plugins:
      score:
        disabled:
        - name: PodTopologySpread
        enabled:
        - name: ImageLocality
          weight: 2
        - name: NodeAffinity
"""

NO_SCORING = """
profiles:
  - schedulerName: default-scheduler
  - schedulerName: no-scoring-scheduler
    plugins:
      preScore:
        disabled:
        - name: '*'
      score:
        disabled:
        - name: '*'
"""

MULTI_POINT = """
profiles:
  - schedulerName: multipoint-scheduler
    plugins:
      multiPoint:
        enabled:
        - name: ImageLocality
          weight: 5
        - name: TaintToleration
        disabled:
        - name: NodePorts
      filter:
        disabled:
        - name: NodeName
      score:
        enabled:
        - name: InterPodAffinity
          weight: 7
"""

ALL_OF_ONES_OWN = """
profiles:
  - schedulerName: non-multipoint-scheduler
    plugins:
      multiPoint:
        disabled:
        - name: '*'
        enabled:
        - name: PrioritySort
        - name: DefaultBinder
        - name: NodeResourcesFit
          weight: 4
      filter:
        enabled:
        - name: TaintToleration
      score:
        disabled:
        - name: NodeResourcesFit
        enabled:
        - name: NodeResourcesFit
          weight: 3
        - name: NodeResourcesBalancedAllocation
"""

MOST_ALLOCATED = """
profiles:
- pluginConfig:
  - args:
      scoringStrategy:
        resources:
        - name: cpu
          weight: 1
        - name: memory
          weight: 1
        - name: intel.com/foo
          weight: 3
        - name: intel.com/bar
          weight: 3
        type: MostAllocated
    name: NodeResourcesFit
"""

RATIO = """
profiles:
- pluginConfig:
  - args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: NodeResourcesFitArgs
      scoringStrategy:
        resources:
        - name: intel.com/foo
          weight: 3
        - name: intel.com/bar
        requestedToCapacityRatio:
          shape:
          - utilization: 0
            score: 0
          - utilization: 100
            score: 10
        type: RequestedToCapacityRatio
    name: NodeResourcesFit
"""

SPREAD = """
profiles:
  - schedulerName: default-scheduler
    pluginConfig:
      - name: PodTopologySpread
        args:
          defaultConstraints:
            - maxSkew: 1
              topologyKey: topology.kubernetes.io/zone
              whenUnsatisfiable: ScheduleAnyway
          defaultingType: List
"""

ADDED_AFFINITY = """
profiles:
  - schedulerName: default-scheduler
  - schedulerName: foo-scheduler
    pluginConfig:
      - name: NodeAffinity
        args:
          addedAffinity:
            requiredDuringSchedulingIgnoredDuringExecution:
              nodeSelectorTerms:
              - matchExpressions:
                - key: scheduler-profile
                  operator: In
                  values:
                  - foo
"""

SHAPES = {
    "none": "",
    "scores": SCORING,
    "no scores": NO_SCORING,
    "multiPoint": MULTI_POINT,
    "all of one's own": ALL_OF_ONES_OWN,
    "most allocated": MOST_ALLOCATED,
    "ratio": RATIO,
    "spread": SPREAD,
    "added affinity": ADDED_AFFINITY,
}
