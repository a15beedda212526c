"""Why a rule says what it says of a node: seen, wanted, remedy, and a sentence. Filters' answers are the engine's."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from policies.engine.cel import Expression, Result, seen
from policies.engine.decision import EPOCH, CompiledRuleSet, decide
from policies.engine.errors import DeadlineError, ObjectError
from policies.engine.explain import Explanation, NodeExplanation, explain_node
from policies.engine.filters.node_resources import amount
from policies.engine.filters.registry import BUILTIN_FILTERS
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle
from policies.engine.ruleset import RuleSet
from policies.engine.validation import read_rule_set
from policies.manifests import read_documents
from tests.builders import TEAM_FILTER, JSONObject, make_node, make_pod, make_rule_set

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))


def explain(
    rules: dict[str, Any],
    pod: JSONObject | None = None,
    *,
    nodes: list[JSONObject] | None = None,
    pods: list[JSONObject] | None = None,
    node: str = "n1",
    version: int = 3,
) -> NodeExplanation:
    rule_set = msgspec.structs.replace(make_rule_set(**rules), version=version)
    snapshot = Snapshot.of(map(Node.from_json, nodes or [make_node()]), map(Pod.from_json, pods or []))
    cycle = Cycle(pod=Pod.from_json(pod or make_pod()), snapshot=snapshot, now=datetime(2026, 1, 1, tzinfo=UTC))
    return explain_node(CompiledRuleSet(rule_set), cycle, node)


def explain_filter(rule: dict[str, Any], pod: JSONObject | None = None, **around: Any) -> Explanation:
    return explain({"filters": [rule]}, pod, **around).rules[0]


def explain_builtin(name: str, pod: JSONObject | None = None, **around: Any) -> Explanation:
    return explain_filter({"builtin": name, "arguments": around.pop("arguments", {})}, pod, **around)


class TestExpressionFilters:
    NODES = [
        make_node("n1", labels={"team": "data"}),
        make_node("n2", labels={"team": "web", "example.com/kind": "x"}),
        make_node("n3"),
    ]
    POD = make_pod(labels={"team": "web"})

    def test_a_refusal_names_rule_version_values_wish_and_a_node_where_it_holds(self) -> None:
        found = explain_filter(TEAM_FILTER, self.POD, nodes=self.NODES)
        assert found.code == "UnschedulableAndUnresolvable"
        assert found.seen == {"pod.metadata.labels.team": "web", "node.metadata.labels.team": "data"}
        assert found.wanted == TEAM_FILTER["expression"]
        assert found.remedy == 'it is true on n2, where node.metadata.labels.team = "web"'
        assert found.sentence == (
            'filter team (version 3) refused n1: "node belongs to another team". The expression read '
            'pod.metadata.labels.team = "web" and node.metadata.labels.team = "data"; it has to be true: '
            f'{TEAM_FILTER["expression"]}. It is true on n2, where node.metadata.labels.team = "web".'
        )

    def test_what_isnt_there_is_seen_as_nothing(self) -> None:
        found = explain_filter(TEAM_FILTER, self.POD, nodes=self.NODES, node="n3")
        assert found.seen["node.metadata.labels.team"] is None
        assert "node.metadata.labels.team = nothing" in found.sentence

    def test_a_pass_says_what_was_read_and_no_remedy(self) -> None:
        found = explain_filter(TEAM_FILTER, self.POD, nodes=self.NODES, node="n2", version=0)
        assert (found.code, found.reason, found.remedy) == ("Success", "", "")
        assert found.sentence == (
            'filter team lets n2 pass. The expression read pod.metadata.labels.team = "web" and '
            'node.metadata.labels.team = "web".'
        )

    def test_counts_and_the_time_are_seen_and_keys_with_dots_are_spelled_as_in_expressions(self) -> None:
        rule = {
            "name": "few",
            "reason": "full",
            "expression": "node.count({'team': ')now(', 'app': pod.metadata.labels.app}) < 1"
            " && now.getHours() < 1 && node.metadata.labels['example.com/kind'] == params.kind"
            " && usage.free.cpu > 1",
        }
        pod = make_pod(labels={"app": "x"})
        there = make_pod("a", labels={"app": "x", "team": ")now("}, nodeName="n2")
        found = explain({"filters": [rule], "params": {"kind": "x"}}, pod, nodes=self.NODES, pods=[there], node="n2")
        assert found.rules[0].seen == {
            "node.metadata.labels['example.com/kind']": "x",
            "usage.free.cpu": 4000,
            "params.kind": "x",
            "node.count({'team': ')now(', 'app': pod.metadata.labels.app})": 1,
            "pod.metadata.labels.app": "x",
            "now": "2026-01-01T00:00:00+00:00",
        }
        assert found.rules[0].remedy == "it is true on no node"

    def test_a_count_over_all_namespaces_is_seen_beside_that_of_one(self) -> None:
        rule = {"name": "a", "expression": "node.count({}) + node.countInAllNamespaces({}) < 1"}
        there = [make_pod(name, namespace=name, nodeName="n2") for name in ("default", "other")]
        found = explain({"filters": [rule]}, self.POD, nodes=self.NODES, pods=there, node="n2")
        assert found.rules[0].seen == {"node.count({})": 1, "node.countInAllNamespaces({})": 2}

    def test_a_count_that_cant_be_made_is_seen_as_its_fault(self) -> None:
        rule = {"name": "a", "expression": "node.count({'app': pod.metadata.labels.nope}) < 1"}
        found = explain_filter(rule, self.POD)
        assert found.code == "Error"
        assert "nope" in found.seen["node.count({'app': pod.metadata.labels.nope})"]

    def test_a_count_is_compiled_once_for_all_nodes_on_which_the_rule_is_true(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        compiled: list[str] = []

        def compiling(source: str, result: Result) -> Expression:
            compiled.append(source)
            return Expression(source, result)

        monkeypatch.setattr(seen, "Expression", compiling)
        rule = {"name": "few", "expression": "node.count({'once': 'a'}) < 1"}
        there = make_pod("a", labels={"once": "a"}, nodeName="n1")
        nodes = [make_node(f"n{number}") for number in range(1, 9)]
        found = explain_filter(rule, nodes=nodes, pods=[there])
        assert found.remedy == "it is true on n2, where node.count({'once': 'a'}) = 0"
        assert compiled == ["node.count({'once': 'a'})"]

    def test_a_count_in_a_comment_isnt_seen(self) -> None:
        found = explain_filter({"name": "a", "expression": "false // not node.count(this)"})
        assert (found.code, found.seen) == ("UnschedulableAndUnresolvable", {})

    @pytest.mark.parametrize(
        ("expression", "changeable"),
        [
            ("pod.metadata.name == 'x' && requests.cpu > 0", "the Pod"),
            ("cluster.count({'app': pod.metadata.name}) > 0", "the Pod or how many Pods it counts"),
            ("cluster.countInAllNamespaces({'app': 'x'}) > params.few", "params or how many Pods it counts"),
            ("namespaceObject.metadata.labels.?team.orValue('') == 'x'", "the Pod's namespace"),
            ("now < timestamp('2020-01-01T00:00:00Z')", "the time"),
            ("false", "the rule"),
        ],
    )
    def test_a_rule_that_reads_nothing_of_nodes_says_so_and_what_it_reads(
        self, expression: str, changeable: str
    ) -> None:
        found = explain({"filters": [{"name": "a", "expression": expression}], "params": {"few": 3}}).rules[0]
        assert found.remedy == (
            f"it reads nothing of nodes, so it says the same of every node: {changeable} would have to change"
        )

    def test_a_rule_that_reads_nothing_at_all_says_so(self) -> None:
        found = explain_filter({"name": "a", "expression": "false", "reason": "closed"})
        assert 'refused n1: "closed". The expression reads nothing; it has to be true: false.' in found.sentence

    def test_an_error_has_its_message_and_what_helps(self) -> None:
        rule = {"name": "a", "expression": "node.metadata.labels.nope == 'x'"}
        found = explain_filter(rule)
        assert (found.code, found.reason) == ("Error", "rule a could not be evaluated")
        assert "could not be evaluated: " in found.sentence
        assert ".? and orValue" in found.remedy
        passed = explain_filter(rule | {"onError": "pass"})
        assert passed.code == "Success"
        assert "could not be evaluated" in passed.sentence

    def test_long_values_are_cut_short_in_the_sentence_only(self) -> None:
        found = explain_filter({"name": "a", "expression": "size(pod.spec.containers) > 9"}, make_pod("x" * 200))
        found_long = explain_filter({"name": "a", "expression": "pod.metadata.name == ''"}, make_pod("x" * 200))
        assert "…" in found_long.sentence
        assert found_long.seen == {"pod.metadata.name": "x" * 200}
        assert isinstance(found.seen["pod.spec.containers"], list)

    def test_a_rule_after_the_one_that_refused_is_explained_but_wasnt_asked(self) -> None:
        rules = {"filters": [TEAM_FILTER, {"name": "b", "expression": "false", "reason": "no"}]}
        first, second = explain(rules, self.POD, nodes=self.NODES).rules
        assert (first.asked, second.asked) == (True, False)
        assert second.sentence.startswith('filter b (version 3) wasn\'t asked, and would have refused n1: "no"')

    def test_a_shadow_rule_doesnt_count(self) -> None:
        found = explain({"filters": [{"name": "b", "expression": "false", "mode": "shadow"}]})
        assert found.feasible
        assert "(mode shadow, so that it doesn't count) would have refused n1" in found.rules[0].sentence

    def test_a_node_that_isnt_there_is_refused(self) -> None:
        with pytest.raises(ObjectError, match="no node is called n9"):
            explain({"filters": [TEAM_FILTER]}, node="n9")


class TestBuiltins:
    def test_resources_say_what_is_needed_free_and_to_be_freed(self) -> None:
        there = make_pod("a", requests={"cpu": "3500m", "memory": "1Gi"}, nodeName="n1")
        found = explain_builtin("PodFitsResources", make_pod(requests={"cpu": "2"}), pods=[there])
        assert found.seen == {"usage.allocatable.cpu": 4000, "usage.free.cpu": 500}
        assert found.wanted == "2,000m cpu"
        assert found.sentence == (
            'filter PodFitsResources (version 3) refused n1: "Insufficient cpu". The Pod needs 2,000m cpu, '
            "n1 has 500m of 4,000m free. Would fit if 1,500m cpu were freed."
        )

    def test_resources_that_can_never_fit_and_several_at_once_are_told_apart(self) -> None:
        pod = make_pod(requests={"cpu": "8", "memory": "6Gi", "example.com/gpu": "1"})
        found = explain_builtin(
            "NodeResourcesFit",
            pod,
            nodes=[make_node(pods="1")],
            pods=[make_pod("a", requests={"memory": "3Gi"}, nodeName="n1")],
        )
        assert found.remedy == "there is never that much cpu and example.com/gpu on this node"
        assert "needs 6Gi memory, n1 has 5Gi of 8Gi free" in found.sentence

    def test_resources_that_would_all_have_to_be_freed_are_named_together(self) -> None:
        there = make_pod("a", requests={"cpu": "3", "memory": "3Gi"}, nodeName="n1")
        pod = make_pod(requests={"cpu": "2", "memory": "6Gi"})
        assert explain_builtin("PodFitsResources", pod, pods=[there]).remedy == (
            "would fit if 1,000m cpu and 1Gi memory were freed"
        )

    def test_node_selector_says_what_is_wanted_and_what_the_node_has(self) -> None:
        pod = make_pod(nodeSelector={"disktype": "ssd", "example.com/rack": "r1", "ok": "yes"})
        found = explain_builtin("MatchNodeSelector", pod, nodes=[make_node(labels={"disktype": "hdd", "ok": "yes"})])
        assert found.seen == {"node.metadata.labels.disktype": "hdd", "node.metadata.labels['example.com/rack']": None}
        assert found.wanted == "disktype=ssd and example.com/rack=r1"
        assert "and the node has node.metadata.labels.disktype = hdd and no node.metadata.labels['example.com" in (
            found.sentence
        )

    @pytest.mark.parametrize(
        ("terms", "wanted", "labels_help"),
        [
            (
                [
                    {"matchExpressions": [{"key": "a", "operator": "In", "values": ["x", "y"]}]},
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n9"]}]},
                ],
                "a In (x, y) or metadata.name In (n9)",
                True,
            ),
            ([{"matchExpressions": [{"key": "a", "operator": "Exists"}]}], "a Exists", True),
            # As the DaemonSet controller writes it.
            (
                [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n9"]}]}],
                "metadata.name In (n9)",
                False,
            ),
            ([{}], "an empty term, which no node has", False),
            ([{"matchExpressions": [{"key": "a", "operator": "Near"}]}], "a term that Kubernetes can't read", False),
            ([], "one of no terms, which no node has", False),
        ],
        ids=["two terms", "exists", "another node's name", "an empty term", "an unknown operator", "no terms"],
    )
    def test_node_affinity_says_what_each_term_misses_and_whether_labels_help(
        self, terms: list[Any], wanted: str, *, labels_help: bool
    ) -> None:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        found = explain_builtin("MatchNodeSelector", make_pod(affinity={"nodeAffinity": required}))
        assert found.wanted == wanted
        assert found.remedy == (
            "would pass if n1 were labelled so, or if the Pod didn't ask for it"
            if labels_help
            else "no label of n1 helps: would pass if the Pod didn't ask for it"
        )

    def test_node_affinity_that_holds_is_left_out(self) -> None:
        terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]}]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        pod = make_pod(affinity={"nodeAffinity": required}, nodeSelector={"a": "b"})
        assert explain_builtin("MatchNodeSelector", pod).wanted == "a=b"

    def test_affinity_that_the_rule_adds_is_the_rules(self) -> None:
        terms = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}
        added = {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        found = explain_builtin("MatchNodeSelector", make_pod(nodeSelector={"b": "c"}), arguments=added)
        assert (
            "The rule wants a Exists, and the Pod wants b=c, and the node has no node.metadata.labels.a"
            in found.sentence
        )
        assert found.remedy == "would pass if n1 were labelled so, or if the rule and the Pod didn't ask for it"

    def test_taints_are_named_but_not_those_that_are_tolerated(self) -> None:
        taints = [
            {"key": "gpu", "value": "a100", "effect": "NoSchedule"},
            {"key": "down", "effect": "NoExecute"},
            {"key": "fine", "effect": "NoSchedule"},
            {"key": "soft", "effect": "PreferNoSchedule"},
        ]
        pod = make_pod(tolerations=[{"key": "fine", "operator": "Exists"}])
        found = explain_builtin("PodToleratesNodeTaints", pod, nodes=[make_node(taints=taints)])
        assert found.seen == {"node.spec.taints": ["gpu=a100:NoSchedule", "down:NoExecute"]}
        assert "has the taints gpu=a100:NoSchedule, down:NoExecute, which the Pod doesn't tolerate" in found.sentence
        assert found.remedy.endswith("or without them on the node")

    def test_ports_name_the_pod_that_has_them(self) -> None:
        def with_port(name: str, number: int, **spec: Any) -> JSONObject:
            ports = [{"hostPort": number, "hostIP": spec.pop("ip", "")}]
            return make_pod(name, containers=[{"name": "c", "ports": ports}], **spec)

        pods = [with_port("a", 80, nodeName="n1", ip="10.0.0.1"), with_port("b", 81, nodeName="n1")]
        found = explain_builtin("PodFitsHostPorts", with_port("c", 80), pods=pods)
        assert found.seen == {"host ports": {"TCP 80": "default/a"}}
        assert "On n1 port TCP 80 is taken by default/a. Would pass without default/a on the node." in found.sentence

    def test_each_pod_that_has_a_host_port_of_one_address_is_in_the_way_of_one_that_wants_it_of_all(self) -> None:
        def with_port(name: str, **more: str) -> JSONObject:
            port = {"containerPort": 80, "hostPort": 80} | more
            return make_pod(name, containers=[{"name": "c", "image": "i", "ports": [port]}], nodeName="n1")

        pods = [with_port("a", hostIP="10.0.0.1"), with_port("b", hostIP="10.0.0.2")]
        found = explain_builtin("PodFitsHostPorts", with_port("c"), pods=pods)
        assert found.remedy == "would pass without default/a and default/b on the node"

    def test_a_pod_that_has_several_host_ports_is_named_once_in_what_would_help(self) -> None:
        def with_ports(name: str, *numbers: int, **more: str) -> JSONObject:
            ports = [{"containerPort": number, "hostPort": number} | more for number in numbers]
            return make_pod(name, containers=[{"name": "c", "image": "i", "ports": ports}], nodeName="n1")

        pods = [with_ports("a", 80, hostIP="10.0.0.1"), with_ports("b", 80, 443, hostIP="10.0.0.2")]
        found = explain_builtin("PodFitsHostPorts", with_ports("c", 80, 443), pods=pods)
        assert found.remedy == "would pass without default/a and default/b on the node"

    def test_a_cordoned_node_says_how_to_open_it(self) -> None:
        found = explain_builtin("CheckNodeUnschedulable", nodes=[make_node(unschedulable=True)])
        assert found.remedy == "would pass after kubectl uncordon n1"

    def test_a_named_node_is_the_only_one_that_passes(self) -> None:
        found = explain_builtin("HostName", make_pod(nodeName="n9"))
        assert found.sentence.endswith("The Pod names n9. The only node that passes is n9.")

    def test_conditions_of_the_node_are_listed_where_they_refuse_it(self) -> None:
        node = make_node()
        node["status"]["conditions"] = [
            {"type": "Ready", "status": "Unknown"},
            {"type": "DiskPressure", "status": "True"},
        ]
        found = explain_builtin("CheckNodeDiskPressure", nodes=[node])
        assert found.seen == {"condition Ready": "Unknown", "condition DiskPressure": "True"}
        cordoned = explain_builtin("CheckNodeCondition", nodes=[make_node(unschedulable=True)])
        assert "Ready True, and it is cordoned" in cordoned.sentence

    def test_spreading_counts_the_domains(self) -> None:
        selector = {"matchLabels": {"app": "x"}}
        constraint = {
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": selector,
        }
        pod = make_pod(labels={"app": "x"}, topologySpreadConstraints=[constraint])
        nodes = [make_node("n1", labels={"zone": "a"}), make_node("n2", labels={"zone": "b"}), make_node("n3")]
        there = [make_pod("p", labels={"app": "x"}, nodeName="n1")]
        found = explain_builtin("EvenPodsSpread", pod, nodes=nodes, pods=there)
        assert found.seen == {"node.metadata.labels.zone": "a", "matching Pods by zone": {"a": 1, "b": 0}}
        assert "The domain zone=a has 1 matching Pods, the emptiest domain 0" in found.sentence
        pod["spec"]["topologySpreadConstraints"].insert(0, constraint | {"maxSkew": 9})
        both = explain_builtin("EvenPodsSpread", pod, nodes=nodes, pods=there)
        assert both.wanted == "a skew of at most 9 by zone, a skew of at most 1 by zone"
        assert both.sentence == found.sentence
        unlabelled = explain_builtin("EvenPodsSpread", pod, nodes=nodes, node="n3")
        assert "The node n3 has no label zone" in unlabelled.sentence
        selector["matchLabels"] = {"app": "not a value"}
        assert explain_builtin("EvenPodsSpread", pod, nodes=nodes).code == "Error"

    @pytest.mark.parametrize(
        ("more", "zones", "places", "node", "remedy"),
        [
            ({}, {"n1": "a", "n2": "b"}, ["n1"], "n1", "would pass once zone=a has fewer of these Pods, or other domains more"),
            ({}, {"n1": "a", "n3": ""}, [], "n3", "would pass if n3 were labelled with zone"),
            # That other domains have more is no help where one is missing, and counts as an empty one.
            ({"minDomains": 3}, {"n1": "a", "n2": "b"}, ["n1", "n2"], "n1", "would pass once zone=a has fewer of these Pods"),
        ],
    )  # fmt: skip
    def test_what_would_help_against_an_uneven_spread_helps(
        self, more: dict[str, Any], zones: dict[str, str], places: list[str], node: str, remedy: str
    ) -> None:
        constraint = {
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "x"}},
        }
        pod = make_pod(labels={"app": "x"}, topologySpreadConstraints=[constraint | more])
        nodes = [make_node(name, labels={"zone": zone} if zone else {}) for name, zone in zones.items()]
        there = [make_pod(f"p{number}", labels={"app": "x"}, nodeName=place) for number, place in enumerate(places)]
        assert explain_builtin("EvenPodsSpread", pod, nodes=nodes, pods=there, node=node).remedy == remedy

    def test_what_would_help_against_several_uneven_spreads_takes_all_of_it_together(self) -> None:
        constraints = [
            {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "x"}}}
            for key in ("zone", "rack")
        ]  # fmt: skip
        pod = make_pod(labels={"app": "x"}, topologySpreadConstraints=constraints)
        nodes = [make_node(f"n{name}", labels={"zone": name, "rack": name}) for name in "ab"]
        there = [make_pod("p", labels={"app": "x"}, nodeName="na")]
        found = explain_builtin("EvenPodsSpread", pod, nodes=nodes, pods=there, node="na")
        assert found.remedy == (
            "would pass once zone=a has fewer of these Pods, or other domains more, "
            "and once rack=a has fewer of these Pods, or other domains more"
        )

    def test_what_isnt_known_more_closely_says_what_the_built_in_wants(self) -> None:
        found = explain_builtin("CheckNodeLabelPresence", arguments={"labels": ["rack"]})
        assert (
            found.wanted
            == "The node has all of the labels given, whatever their values; with presence false, none of them"
        )

    def test_amounts_are_written_as_people_do(self) -> None:
        amounts = [amount("cpu", 1500), amount("memory", 3 << 29), amount("memory", 12), amount("example.com/x", 1000)]
        assert amounts == ["1,500m", "1.5Gi", "12", "1,000"]


class TestScores:
    RULES = {
        "filters": [{"name": "not-n3", "expression": "node.metadata.name != 'n3'"}],
        "scores": [
            {"builtin": "LeastRequestedPriority", "weight": 2},
            {"name": "price", "expression": "double(node.metadata.?annotations.price.orValue('0'))", "bounds": [0, 50]},
            {"name": "size", "expression": "size(node.metadata.name)"},
            {"name": "dry", "expression": "1", "mode": "shadow"},
            {"name": "broken", "expression": "int(node.metadata.labels.nope)"},
        ],
    }
    NODES = [make_node("n1"), make_node("node-2"), make_node("n3")]

    def explain(self, node: str) -> dict[str, Explanation]:
        nodes = [msgspec.json.decode(msgspec.json.encode(each)) for each in self.NODES]
        nodes[0]["metadata"]["annotations"] = {"price": "20"}
        return {rule.rule: rule for rule in explain(self.RULES, nodes=nodes, node=node).rules}

    def test_an_expression_has_value_bounds_score_weight_and_contribution(self) -> None:
        price = self.explain("n1")["price"]
        assert (price.value, price.bounds, price.raw, price.weight) == (20.0, (0, 50), 40, 1)
        assert price.contribution == pytest.approx(0.8)
        assert price.remedy == "50 and more would give 100"
        assert price.sentence == (
            "score price (version 3) gives n1 40 of 100. The expression gave 20.0 between 0 and 50, its bounds; it read "
            'node.metadata.annotations.price = "20". Weight 1 of 5 adds 0.80 of 10 points.'
        )

    def test_without_bounds_those_of_the_nodes_scored_are_named(self) -> None:
        size = self.explain("node-2")["size"]
        assert (size.value, size.bounds, size.raw, size.remedy) == (6, (2, 6), 100, "")
        assert "between 2 and 6, the lowest and highest of the nodes scored" in size.sentence

    def test_a_built_in_says_what_it_goes_by(self) -> None:
        least = self.explain("n1")["LeastRequestedPriority"]
        assert least.value is None
        assert "Nodes score by the share of cpu and memory that stays free" in least.sentence

    def test_a_shadow_score_adds_nothing(self) -> None:
        dry = self.explain("n1")["dry"]
        assert dry.contribution == 0
        assert "shadow mode and adds nothing" in dry.sentence

    def test_an_expression_without_a_number_says_so(self) -> None:
        broken = self.explain("n1")["broken"]
        assert (broken.raw, broken.value) == (0, None)
        assert "gave no number" in broken.sentence

    def test_contributions_add_up_to_the_points_before_rounding(self) -> None:
        found = explain(self.RULES, nodes=self.NODES)
        total = sum(rule.contribution or 0 for rule in found.rules)
        assert found.points == int(total + 0.5)

    def test_a_refused_node_isnt_scored(self) -> None:
        price = self.explain("n3")["price"]
        assert (price.code, price.asked, price.raw) == ("NotScored", False, None)


class TestTextAndJSON:
    def test_the_text_has_a_line_a_rule(self) -> None:
        lines = explain(TestScores.RULES, nodes=TestScores.NODES).text().splitlines()
        assert lines[0] == "default/web-1 may use n1, 4 of 10 points"
        assert len(lines) == 7
        refused = explain(TestScores.RULES, nodes=TestScores.NODES, node="n3").text()
        assert refused.startswith("default/web-1 may not use n3\n- filter not-n3 (version 3) refused n3")

    def test_the_json_reads_back_equal(self) -> None:
        found = explain(TestScores.RULES, nodes=TestScores.NODES)
        assert msgspec.json.decode(msgspec.json.encode(found), type=NodeExplanation) == found


def _rule_sets() -> list[RuleSet]:
    documents = [found.document for path in EXAMPLES for found in read_documents(path.read_text(), path.name)]
    return [read_rule_set(document) for document in documents if document["kind"] == "RuleSet"]


@pytest.mark.parametrize("rule_set", _rule_sets(), ids=lambda rule_set: rule_set.name)
class TestExamples:
    def test_every_rule_is_explained_as_the_engine_decides(self, rule_set: RuleSet) -> None:
        compiled = CompiledRuleSet(rule_set)
        for test in rule_set.spec.tests:
            snapshot = Snapshot.of(map(Node.from_json, test.nodes), map(Pod.from_json, test.pods))
            now = datetime.fromisoformat(test.now) if test.now else EPOCH
            cycle = Cycle(pod=Pod.from_json(test.pod), snapshot=snapshot, now=now, params=compiled.params)
            answer = decide(compiled, cycle, snapshot.table.all_rows())
            refused = {name: status.reason for name, status in answer.refused()}
            for name in answer.names:
                found = explain_node(compiled, cycle, name)
                assert found.feasible == (name not in refused)
                reasons = [rule.reason for rule in found.rules if rule.reason and rule.asked]
                assert reasons == ([refused[name]] if name in refused else [])

    def test_its_tests_see_every_filter_let_pass_and_refuse(self, rule_set: RuleSet) -> None:
        compiled = CompiledRuleSet(rule_set)
        said: dict[str, set[bool]] = {rule.key: set() for rule, _ in compiled.filters}
        for test in rule_set.spec.tests:
            snapshot = Snapshot.of(map(Node.from_json, test.nodes), map(Pod.from_json, test.pods))
            now = datetime.fromisoformat(test.now) if test.now else EPOCH
            cycle = Cycle(pod=Pod.from_json(test.pod), snapshot=snapshot, now=now, params=compiled.params)
            for column in decide(compiled, cycle, snapshot.table.all_rows()).filters:
                said[column.rule.key] |= {code == -1 for code in column.codes.tolist() if code != -2}
        assert said == {key: {True, False} for key in said}


# What a built-in can't be without.
NEEDED = {"MaxReplicasPerDomain": {"maxReplicas": 1}}


@pytest.mark.parametrize("name", sorted(BUILTIN_FILTERS))
def test_every_built_in_filter_is_explained_without_a_fault(name: str) -> None:
    node = make_node(unschedulable=True, taints=[{"key": "a", "effect": "NoSchedule"}])
    node["status"]["conditions"] = [
        {"type": kind, "status": "True"} for kind in ("MemoryPressure", "DiskPressure", "PIDPressure")
    ]
    pod = make_pod(nodeName="n9", nodeSelector={"a": "b"}, requests={"cpu": "99"})
    found = explain_builtin(name, pod, nodes=[node], arguments=NEEDED.get(name, {}))
    assert found.sentence.startswith(f"filter {name} (version 3) ")
    assert (found.code == "Success") == (not found.remedy and not found.reason) or found.wanted


class TestNominatedPods:
    """A node that passes as it is, and is refused beside the Pods that are nominated to it, as Berth's own scheduler asks."""

    def explain(self, room: str, mode: str = "enforce") -> NodeExplanation:
        coming = Pod.from_json(make_pod("coming", requests={"cpu": room}, priority=10))
        nodes = [Node.from_json(make_node(name, cpu="2")) for name in ("n1", "n2")]
        snapshot = Snapshot.of(nodes).changed({}, nominated={"n1": [coming]})
        incoming = Pod.from_json(make_pod("web", requests={"cpu": "1"}, priority=10))
        rule_set = CompiledRuleSet(make_rule_set(filters=[{"builtin": "PodFitsResources", "mode": mode}]))
        cycle = Cycle(pod=incoming, snapshot=snapshot, now=EPOCH)
        return explain_node(rule_set, cycle, "n1")

    def test_the_filter_that_refuses_beside_them_is_named_once(self) -> None:
        passed, refused = self.explain("1500m").rules
        assert passed.code == "Success"
        assert refused.sentence.startswith(
            'filter PodFitsResources refused n1, beside the Pods nominated there: "Insufficient cpu"'
        )

    def test_where_they_leave_room_nothing_is_said_of_them(self) -> None:
        assert [each.code for each in self.explain("500m").rules] == ["Success"]

    def test_a_filter_in_mode_shadow_is_not_asked_beside_them(self) -> None:
        assert [each.code for each in self.explain("1500m", "shadow").rules] == ["Success"]

    def test_a_deadline_that_was_missed_leaves_nothing_to_explain(self) -> None:
        rule_set = CompiledRuleSet(make_rule_set(filters=[{"builtin": "PodFitsResources"}]))
        snapshot = Snapshot.of([Node.from_json(make_node("n1"))])
        cycle = Cycle(pod=Pod.from_json(make_pod()), snapshot=snapshot, now=EPOCH)
        rows = snapshot.table.all_rows()
        missed = decide(rule_set, cycle, rows, deadline=lambda: True)
        with pytest.raises(DeadlineError):
            explain_node(rule_set, cycle, "n1", rows, missed)
