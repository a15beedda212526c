"""The scheduler Policies that Kubernetes published as examples, indented with tabs as they are there.

kubernetes/kubernetes v1.15, examples/scheduler-policy-config.json and examples/scheduler-policy-config-with-extender.json
(Apache-2.0), the whitespace included.
"""

OFFICIAL = """{
"kind" : "Policy",
"apiVersion" : "v1",
"predicates" : [
\t{"name" : "PodFitsPorts"},
\t{"name" : "PodFitsResources"},
\t{"name" : "NoDiskConflict"},
\t{"name" : "MatchNodeSelector"},
\t{"name" : "HostName"}
\t],
"priorities" : [
\t{"name" : "LeastRequestedPriority", "weight" : 1},
\t{"name" : "BalancedResourceAllocation", "weight" : 1},
\t{"name" : "ServiceSpreadingPriority", "weight" : 1},
\t{"name" : "EqualPriority", "weight" : 1}
\t]
}
"""

WITH_EXTENDER = """{
"kind" : "Policy",
"apiVersion" : "v1",
"extenders" : [
\t{
        "urlPrefix": "http://127.0.0.1:12346/scheduler",
        "filterVerb": "filter",
        "bindVerb": "bind",
        "prioritizeVerb": "prioritize",
        "weight": 5,
        "enableHttps": false,
        "nodeCacheCapable": false
\t}
    ]
}
"""
