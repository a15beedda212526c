"""Where the Pods are that terms mean: the same whether looks are gone through or a column is kept."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.engine.objects import inter_pod
from policies.engine.objects.columns import ANY_NAMESPACE, required_anti_terms, weighed_terms
from policies.engine.objects.inter_pod import Domains, places_of, resolved, tokens_for
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.objects.table import Table
from tests.builders import make_node, make_pod

NAMESPACES = {"default": {}, "other": {"team": "a"}}


def term(**more: Any) -> dict[str, Any]:
    return {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "zone", **more}


TERMS = [
    [term()],
    [term(), {"labelSelector": {"matchExpressions": [{"key": "own", "operator": "Exists"}]}, "topologyKey": "zone"}],
    [term(namespaceSelector={})],
    [term(namespaceSelector={"matchLabels": {"team": "a"}}, namespaces=["default"])],
    [{"topologyKey": "zone", "labelSelector": {}}],
    [{"topologyKey": "zone", "labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["db", "db", "no"]}]}}],
]  # fmt: skip
# As they stand in anti-affinity: some ask for one label, some for one of several, some for none.
SELECTORS: list[dict[str, Any] | None] = [
    *({"matchLabels": {"app": f"a{number}"}} for number in range(4)),
    *({"matchLabels": {"app": f"a{number}", "tier": "web"}} for number in range(4)),
    {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a0", "a1", "a1"]}]},
    {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a0"]}]},
    {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
    {},
    None,
]
anti = st.lists(
    st.tuples(st.sampled_from(SELECTORS), st.sampled_from([{}, {"namespaceSelector": {}}, {"namespaces": ["other"]}])),
    max_size=6,
)
placed = st.lists(
    st.tuples(
        st.integers(0, 3), st.sampled_from(["web", "db"]), st.booleans(), st.sampled_from(["default", "other", "new"])
    ),
    max_size=8,
)


def sums(table: Table, found: Any) -> tuple[list[int], bool]:
    domains = Domains(table, "zone")
    domains.add_all(found, 2)
    return domains.sums.tolist(), domains.touched


@given(st.sampled_from(TERMS), placed, placed, st.sampled_from([None, 0, 3]))
def test_a_column_that_is_kept_says_what_looks_say(
    terms: list[dict[str, Any]], first: list[tuple[Any, ...]], later: list[tuple[Any, ...]], outside: int | None
) -> None:
    wanted = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    asking = Pod.from_json(make_pod("asking", affinity={"podAffinity": wanted}))
    # The first or the last of them may be in no zone.
    nodes = [Node.from_json(make_node(f"n{n}", labels={"zone": f"z{n % 2}"} if n != outside else {})) for n in range(4)]
    snapshot = Snapshot.of(nodes, made(first), NAMESPACES)
    asked = resolved(asking.terms.required, snapshot)
    with pytest.MonkeyPatch.context() as patch:
        for pods in (first, later):
            snapshot = snapshot.changed(dict(Snapshot.of(nodes, made(pods)).nodes))
            patch.setattr(inter_pod, "_MAX_ASKED", -1)
            column = sums(snapshot.table, places_of(snapshot.table, asked))
            fresh = Snapshot.of(nodes, made(pods), NAMESPACES).table
            patch.setattr(inter_pod, "_MAX_ASKED", 1_000)
            assert column == sums(fresh, places_of(fresh, asked))


def made(pods: list[tuple[Any, ...]]) -> list[Pod]:
    return [
        Pod.from_json(
            make_pod(
                f"p{place}",
                namespace=namespace,
                labels={"app": app} | ({"own": str(place)} if own else {}),
                nodeName=f"n{node}",
            )
        )
        for place, (node, app, own, namespace) in enumerate(pods)
    ]


@given(st.lists(anti, min_size=1, max_size=5), st.sampled_from([0, 3, 16]), st.data())
def test_of_many_terms_those_are_found_that_mean_a_pod(
    steps: list[list[tuple[Any, Any]]], listed: int, data: st.DataObject
) -> None:
    nodes = [Node.from_json(make_node(f"n{number}")) for number in range(2)]
    snapshot = Snapshot.of(nodes, [], NAMESPACES)
    labels = data.draw(
        st.fixed_dictionaries({}, optional={"app": st.sampled_from(["a0", "a1", "x"]), "tier": st.just("web")})
    )
    asking = Pod.from_json(make_pod("asking", labels=labels))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inter_pod, "_MAX_LISTED", listed)
        for step, found in enumerate(steps):
            terms = [{"topologyKey": "zone", "labelSelector": selector, **spaces} for selector, spaces in found]
            wanted = {
                "requiredDuringSchedulingIgnoredDuringExecution": terms,
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "podAffinityTerm": each} for each in terms
                ],
            }
            there = Pod.from_json(make_pod("there", nodeName=f"n{step % 2}", affinity={"podAntiAffinity": wanted}))
            snapshot = snapshot.changed(dict(Snapshot.of([nodes[step % 2]], [there]).nodes))
            fresh = Snapshot.of(nodes, [pod for info in snapshot.nodes.values() for pod in info.pods], NAMESPACES)
            for read, term_of in ((required_anti_terms, lambda token: token), (weighed_terms, lambda token: token[0])):
                listed_all = [
                    token
                    for group in ("default", ANY_NAMESPACE)
                    for token in read(fresh.table).group(group)
                    if term_of(token).matches("default", asking.labels, {})
                ]
                got = [token for token, _ in tokens_for(read(snapshot.table), asking)]
                assert len(got) == len(set(got))
                assert {token for token in got if term_of(token).matches("default", asking.labels, {})} == set(
                    listed_all
                )
