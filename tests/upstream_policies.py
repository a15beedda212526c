"""The scheduler Policies that Kubernetes published as examples, with their original tabs.

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

# Every member that an extender of a Policy had (v1.15 pkg/scheduler/api/v1/types.go), spelled as its JSON was; tlsConfig as Go wrote it.
EVERY_MEMBER = """{
"kind" : "Policy",
"apiVersion" : "v1",
"predicates" : [{"name" : "PodFitsResources"}],
"priorities" : [],
"extenders" : [
\t{
\t\t"urlPrefix": "https://127.0.0.1:12346/scheduler",
\t\t"filterVerb": "filter",
\t\t"preemptVerb": "preempt",
\t\t"prioritizeVerb": "prioritize",
\t\t"weight": 5,
\t\t"bindVerb": "bind",
\t\t"enableHttps": true,
\t\t"tlsConfig": {"Insecure": false, "ServerName": "extender", "CAFile": "ca.pem", "CertFile": "ca.pem", "KeyFile": "ca.pem"},
\t\t"httpTimeout": 1500000000,
\t\t"nodeCacheCapable": true,
\t\t"managedResources": [{"name": "example.com/gpu", "ignoredByScheduler": true}, {"name": "example.com/fpga"}],
\t\t"ignorable": true
\t},
\t{"urlPrefix": "http://127.0.0.1:12347", "filterVerb": "filter", "httpTimeout": 0}
\t]
}
"""
