"""The canary: what it asks of the cluster, what it says of what it saw, and that it never stays."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from scheduler.cluster.errors import APIError, APIForbiddenError, APIInvalidError, APIUnavailableError
from scheduler.doctor import canary
from scheduler.doctor.canary import LABEL, Report, Wish, harmless_class, may_preempt, pod_document, run
from scheduler.models import Caller, Decision
from tests.component.doctor.doctor_cluster import Looked, OnePodCluster

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canary, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(canary, "GRACE_SECONDS", 0.05)
    monkeypatch.setattr(canary, "NAMES_SECONDS", 0.05)
    monkeypatch.setattr(canary, "_DELETE_WAIT_SECONDS", 0.001)


def decide(pod: dict[str, Any], verb: str, **fields: Any) -> None:
    row = {"nodes": 3, "feasible": 2, "top_reason": "", "at": datetime.now(UTC), **fields}
    Decision.objects.create(
        process="extender@a:1:1", sequence=Decision.objects.count() + 1, verb=verb, revision=1,
        pod_namespace="default", pod_name=pod["metadata"]["name"], pod_uid=pod["metadata"]["uid"], **row,
    )  # fmt: skip


def call(verb: str, *, ago: timedelta = timedelta()) -> None:
    Caller.objects.create(
        identity="system:kube-scheduler", verb=verb, address="10.0.0.1", process="extender@a:1:1",
        last_at=datetime.now(UTC) - ago,
    )  # fmt: skip


def condition(reason: str, message: str) -> dict[str, Any]:
    return {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}


def once(*steps: Looked) -> Looked:
    """Do one step at each look at the Pod."""
    left = list(steps)

    def look(pod: dict[str, Any]) -> None:
        if left:
            left.pop(0)(pod)

    return look


def bind(pod: dict[str, Any]) -> None:
    pod["spec"]["nodeName"] = "n1"


def seen(verb: str, **fields: Any) -> Looked:
    return lambda pod: decide(pod, verb, **fields)


def failing(reason: str, message: str) -> Looked:
    def fail(pod: dict[str, Any]) -> None:
        pod["status"]["conditions"] = [condition(reason, message)]

    return fail


def canary_of(cluster: OnePodCluster, **wish: Any) -> Report:
    return run(cluster, Wish(**{"timeout_seconds": 0.3, **wish}))


def states(report: Report) -> dict[str, str]:
    return {verb.verb: verb.state for verb in report.verbs}


def advice(report: Report) -> str:
    return " ".join(f"{each.happens} {each.remedy}" for each in report.advice)


class TestAWiringThatWorks:
    def test_every_wanted_verb_is_seen_with_who_called(self) -> None:
        call("preempt", ago=timedelta(hours=1))
        cluster = OnePodCluster(
            once(seen("filter"), lambda _pod: call("filter"), seen("prioritize"), bind, lambda _pod: call("prioritize"))
        )
        report = canary_of(cluster)
        assert report.ok
        assert report.node == "n1"
        assert states(report) == {
            "filter": "seen", "prioritize": "seen", "bind": "not asked", "preempt": "not asked",
        }  # fmt: skip
        assert report.advice == []
        by = {verb.verb: verb.callers for verb in report.verbs}
        assert [(each.identity, each.address, each.during) for each in by["filter"]] == [
            ("system:kube-scheduler", "10.0.0.1", True)
        ]
        assert [each.during for each in by["preempt"]] == [False]
        assert by["preempt"][0].seconds_ago == pytest.approx(3600, abs=60)

    def test_the_pod_is_deleted(self) -> None:
        cluster = OnePodCluster(once(seen("filter"), seen("prioritize"), bind))
        report = canary_of(cluster)
        assert cluster.deleted == [report.pod]

    def test_decisions_that_only_watched_do_not_hide_the_one_that_counted(self) -> None:
        cluster = OnePodCluster(
            once(seen("filter", mode="shadow", feasible=0), seen("filter"), seen("prioritize"), bind)
        )
        assert next(verb.says for verb in canary_of(cluster).verbs) == "2 of 3 nodes"

    def test_bind_is_wanted_when_it_is_asked_for(self) -> None:
        cluster = OnePodCluster(once(seen("filter"), seen("prioritize"), seen("bind"), bind))
        assert states(canary_of(cluster, verbs=("filter", "prioritize", "bind")))["bind"] == "seen"


class TestAVerbThatKubeSchedulerHadNoReasonToAsk:
    def test_scores_of_one_node(self) -> None:
        report = canary_of(OnePodCluster(once(seen("filter", feasible=1), bind)))
        assert (report.ok, states(report)["prioritize"]) == (True, "not asked")

    def test_scores_of_no_node(self) -> None:
        refused = failing("Unschedulable", "0/3 nodes are available")
        report = canary_of(OnePodCluster(once(seen("filter", feasible=0, top_reason="not yours"), refused)))
        assert (report.ok, states(report)["prioritize"]) == (True, "not asked")
        assert "not yours" in repr(report.verbs)

    def test_nothing_is_proven_when_no_node_was_left_before_berth(self) -> None:
        report = canary_of(OnePodCluster(failing("Unschedulable", "0/3 nodes are available: 3 had untolerated taints")))
        assert (report.ok, states(report)["filter"]) == (False, "not asked")
        assert "untolerated taints" in advice(report)


class TestAWiringThatIsBroken:
    def test_a_pod_that_was_placed_without_berth_says_where_to_look(self) -> None:
        report = canary_of(OnePodCluster(bind))
        assert not report.ok
        assert states(report)["filter"] == "missing"
        assert "without asking Berth" in advice(report)
        assert "ignorable" in advice(report)

    def test_calls_without_decisions_point_to_the_history(self) -> None:
        report = canary_of(OnePodCluster(once(lambda _pod: call("filter"), bind)))
        assert "no Decision about the canary is in the database" in advice(report)

    def test_scores_that_are_missing_are_said(self) -> None:
        report = canary_of(OnePodCluster(once(seen("filter"), bind)))
        assert (report.ok, states(report)["prioritize"]) == (False, "missing")
        assert "prioritizeVerb" in advice(report)

    def test_berths_own_scheduler_asks_no_extender(self) -> None:
        cluster = OnePodCluster(once(seen("schedule"), bind))
        report = canary_of(cluster, scheduler_name="berth")
        assert (report.ok, report.pod, report.verbs) == (False, "", [])
        assert report.summary == "berth is Berth's own scheduler, which asks no extender: there was no canary."

    def test_a_pod_that_nobody_takes_names_the_scheduler(self) -> None:
        report = canary_of(OnePodCluster(), scheduler_name="other")
        assert "none has the schedulerName other" in advice(report)

    @pytest.mark.parametrize(
        ("message", "remedy"),
        [
            ("Post \"http://127.0.0.1:8010/filter\": dial tcp 127.0.0.1:8010: connect: connection refused", "urlPrefix"),
            ("tls: failed to verify certificate: x509: certificate signed by unknown authority", "caFile"),
            ("failed filter with extender at URL http://b/filter, code 403", "BERTH_EXTENDER_CLIENTS"),
            ("failed filter with extender at URL http://b/x/filter, code 404", "path"),
            ("context deadline exceeded (Client.Timeout exceeded while awaiting headers)", "berth_extender_seconds"),
            ("remote error: tls: certificate required", "certFile"),
            ("something new", "kube-scheduler's log"),
        ],
    )  # fmt: skip
    def test_what_kube_scheduler_says_is_repeated_with_what_to_do(self, message: str, remedy: str) -> None:
        report = canary_of(OnePodCluster(failing("SchedulerError", message)))
        assert message.rpartition(":")[2].strip() in advice(report)
        assert remedy in report.advice[0].remedy

    def test_a_secret_in_kube_schedulers_words_is_not_repeated(self) -> None:
        message = "failed filter with extender at URL http://me:hunter2@berth:8010/filter, code 403"
        report = canary_of(OnePodCluster(failing("SchedulerError", message)))
        assert "hunter2" not in repr(report)
        assert "http://berth:8010/filter" in advice(report)


class TestWhateverHappensThePodGoes:
    def test_when_the_watching_breaks(self) -> None:
        def explode(_pod: dict[str, Any]) -> None:
            raise KeyboardInterrupt

        cluster = OnePodCluster(explode)
        with pytest.raises(KeyboardInterrupt):
            canary_of(cluster)
        assert len(cluster.deleted) == 1

    def test_when_the_api_server_is_busy_for_a_moment(self) -> None:
        cluster = OnePodCluster(once(seen("filter"), seen("prioritize"), bind), delete_fails=2)
        assert canary_of(cluster).ok
        assert len(cluster.deleted) == 1

    def test_and_who_reads_is_told_when_it_could_not_be_deleted(self) -> None:
        report = canary_of(OnePodCluster(once(seen("filter"), seen("prioritize"), bind), delete_fails=99))
        assert not report.ok
        assert f"kubectl delete pod -n default {report.pod}" in advice(report)

    def test_also_the_one_that_outlived_its_process(self) -> None:
        def pod(name: str, minutes: int) -> dict[str, Any]:
            at = datetime.now(UTC) - timedelta(minutes=minutes)
            return {"metadata": {"name": name, "creationTimestamp": at.strftime("%Y-%m-%dT%H:%M:%SZ")}}

        cluster = OnePodCluster(bind, left_over=[pod("old", 11), pod("of-somebody-else-now", 1)])
        report = canary_of(cluster)
        assert cluster.deleted == ["old", report.pod]

    def test_when_creating_it_had_no_answer_it_may_be_there_all_the_same(self) -> None:
        class Silent(OnePodCluster):
            def post(self, *, path: str, body: bytes) -> bytes:
                answer = super().post(path=path, body=body)
                if "dryRun" in path:
                    return answer
                message = "the connection broke"
                raise APIUnavailableError(message)

        cluster = Silent()
        assert not canary_of(cluster).ok
        assert cluster.deleted == [cluster.created[0]["metadata"]["name"]]

    def test_who_deletes_it_first_is_named_as_somebody(self) -> None:
        cluster = OnePodCluster()

        def vanish(_pod: dict[str, Any]) -> None:
            cluster.pod = None

        cluster.on_look = vanish
        assert "The canary was deleted" in advice(canary_of(cluster))


class TestItDisturbsNobody:
    def test_it_asks_for_next_to_nothing_pulls_nothing_and_ends_at_once(self) -> None:
        spec = pod_document(Wish(), "1")["spec"]
        (container,) = spec["containers"]
        assert container["resources"]["requests"] == {"cpu": "1m", "memory": "1Mi"}
        assert container["imagePullPolicy"] == "Never"
        assert spec["terminationGracePeriodSeconds"] == 0
        assert pod_document(Wish(), "1")["metadata"]["labels"] == {LABEL: "1"}

    def test_a_default_class_that_preempts_is_replaced_by_one_that_does_not(self) -> None:
        classes = [
            {"metadata": {"name": "usual"}, "value": 1000, "globalDefault": True},
            {"metadata": {"name": "batch"}, "value": 10, "preemptionPolicy": "Never"},
        ]
        cluster = OnePodCluster(bind, priority=1000, classes=classes)
        canary_of(cluster)
        assert cluster.created[0]["spec"]["priorityClassName"] == "batch"

    def test_it_stays_away_when_every_class_preempts(self) -> None:
        classes = [{"metadata": {"name": "usual"}, "value": 1000}]
        cluster = OnePodCluster(bind, priority=1000, classes=classes)
        report = canary_of(cluster)
        assert not report.ok
        assert cluster.created == []
        assert "preemptionPolicy: Never" in advice(report)

    @pytest.mark.parametrize(
        ("spec", "may"),
        [
            ({}, False), ({"priority": 0}, False), ({"priority": -5}, False), ({"priority": 1}, True),
            ({"priority": 1, "preemptionPolicy": "Never"}, False),
        ],
    )  # fmt: skip
    def test_a_priority_above_zero_may_preempt_unless_its_policy_is_never(
        self, spec: dict[str, Any], may: bool
    ) -> None:
        assert may_preempt(spec) is may

    def test_the_lowest_harmless_class_is_taken(self) -> None:
        made = [("a", 5, "Never"), ("b", -1, "PreemptLowerPriority"), ("c", 7, "PreemptLowerPriority")]
        classes = [{"metadata": {"name": n}, "value": v, "preemptionPolicy": p} for n, v, p in made]
        assert harmless_class(classes) == "b"
        assert harmless_class(classes[2:]) == ""


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (APIForbiddenError("exceeded quota", status=403), "quota"),
        (APIInvalidError("violates PodSecurity", status=422), "admission policy"),
        (APIUnavailableError("refused"), "BERTH_KUBECONFIG"),
    ],
)
def test_a_cluster_that_does_not_take_the_canary_says_why(error: APIError, remedy: str) -> None:
    cluster = OnePodCluster(refuse=error)
    report = canary_of(cluster)
    assert not report.ok
    assert str(error) in advice(report)
    assert remedy in advice(report)
    assert cluster.created == []


def test_a_webhook_that_takes_no_dry_run_does_not_stop_the_canary() -> None:
    class Undry(OnePodCluster):
        def post(self, *, path: str, body: bytes) -> bytes:
            if "dryRun" in path:
                message = 'admission webhook "x" does not support dry run'
                raise APIInvalidError(message, status=400)
            return super().post(path=path, body=body)

    assert canary_of(Undry(once(seen("filter"), seen("prioritize"), bind))).ok


def test_the_api_server_may_be_away_while_the_pod_is_watched() -> None:
    def away(_pod: dict[str, Any]) -> None:
        message = "away"
        raise APIUnavailableError(message)

    assert canary_of(OnePodCluster(once(away, seen("filter"), away, seen("prioritize"), bind))).ok


def test_an_account_that_may_not_look_at_the_pod_is_told_so() -> None:
    def forbid(_pod: dict[str, Any]) -> None:
        message = "GET pods: 403 Forbidden: cannot get resource"
        raise APIForbiddenError(message, status=403)

    cluster = OnePodCluster(forbid)
    report = canary_of(cluster)
    assert not report.ok
    assert report.summary == "The canary was made, and couldn't be watched."
    assert "cannot get resource" in advice(report)
    assert "create, get, list and delete Pods" in advice(report)
    assert cluster.deleted == [report.pod]


class TestAnAnswerThatIsNotOfKubernetes:
    """As from a proxy that answers with a page of its own."""

    @pytest.mark.parametrize("asked", ["/pods", "?dryRun=All", "/priorityclasses"])
    def test_before_there_is_a_canary(self, asked: str) -> None:
        cluster = proxied(asked, priority=1000)
        report = canary_of(cluster)
        assert not report.ok
        assert "the answer isn't what Kubernetes gives" in advice(report)
        assert cluster.created == []

    def test_of_its_creation(self) -> None:
        cluster = proxied("/pods", only="post")
        report = canary_of(cluster)
        assert not report.ok
        assert "the answer isn't what Kubernetes gives" in advice(report)
        assert cluster.deleted == [cluster.created[0]["metadata"]["name"]]

    def test_while_the_pod_is_watched(self) -> None:
        cluster = proxied("/berth-canary-", times=1)
        cluster.on_look = once(seen("filter"), seen("prioritize"), bind)
        assert canary_of(cluster, timeout_seconds=10).ok


def proxied(asked: str, *, only: str = "", times: int = 99, **more: Any) -> OnePodCluster:
    """A cluster behind a proxy that answers some requests with a page."""
    left = [times]

    class Proxied(OnePodCluster):
        def get(self, *, path: str, query: dict[str, str] | None = None) -> bytes:
            return self._answer("get", path, super().get(path=path, query=query))

        def post(self, *, path: str, body: bytes) -> bytes:
            return self._answer("post", path, super().post(path=path, body=body))

        def _answer(self, method: str, path: str, answer: bytes) -> bytes:
            is_meant = (path.endswith(asked) or (asked.endswith("-") and asked in path)) and method in (only or method)
            if not is_meant or not left[0]:
                return answer
            left[0] -= 1
            return b"<html>Sign in</html>"

    return Proxied(**more)
