"""Alerts fire in faults that are really made, and every query of the dashboard returns data: Debian's Prometheus reads a running Berth.

Minutes, so `make long` asks for it: ALERTS=whole. Prometheus gets a copy of the rules in which an alert looks back for seconds and waits
for nothing; what it compares with stays. Of the half hour that a webhook's alert waits for, the row says that it is over.
"""

import http.client
import json
import os
import re
import secrets
import shutil
import signal
import sqlite3
import ssl
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from scheduler.cluster.errors import APIError
from scheduler.doctor.alerts import ALERTS, rules
from scheduler.doctor.dashboard import ROWS
from tests.certificates import write
from tests.e2e.test_mutual_tls import Secured
from tests.stack import Stack, eventually, free_port

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(os.environ.get("ALERTS") != "whole", reason="minutes: ALERTS=whole, as in `make long`"),
]
LEASE = "/apis/coordination.k8s.io/v1/namespaces/{}/leases/berth-binder"
RULES = {
    "apiVersion": "berth/v1",
    "kind": "RuleSet",
    "metadata": {"name": "watched"},
    "spec": {
        "filters": [{"name": "short", "expression": "size(pod.metadata.name) < 5", "reason": "its name is long"}],
        "failures": {"redis": "pass"},
    },
}
ANY_NAME = RULES | {
    "spec": {"filters": [{"name": "short", "expression": "true", "reason": "never"}], "failures": {"redis": "pass"}}
}
ASSIGNMENT = {
    "apiVersion": "berth/v1",
    "kind": "Assignment",
    "metadata": {"name": "watched"},
    "spec": {"ruleSet": "watched", "match": {"podSelector": {"matchLabels": {"policy": "watched"}}}},
}
REWRITE = """
from django.db.models import F, Value
from django.db.models.functions import Replace
from scheduler.models import LedgerCheckpoint
LedgerCheckpoint.objects.update(note=Replace("note", Value({0!r}), Value({1!r})))
"""
REFUSED_FOR_LONG = """
from datetime import timedelta
from django.utils import timezone
from scheduler.models import Delivery
from scheduler.webhooks.keeping import Wanted, make_webhook, send_test
now = timezone.now()
hook, _ = make_webhook(Wanted("ci", "{url}", (), "json"), by="root", now=now)
delivery = send_test(hook, by="root", now=now)
Delivery.objects.filter(pk=delivery.pk).update(made_at=now - timedelta(minutes=31))
"""


def shortened() -> dict[str, Any]:
    """Return the rules with alerts that look back for four seconds in place of a minute, and fire at once."""
    document = rules()
    for group in document["groups"]:
        for rule in group["rules"]:
            if "alert" in rule:
                rule["expr"] = re.sub(r"\[(\d+)m\]", lambda found: f"[{4 * int(found[1])}s]", rule["expr"])
                rule["for"] = "0s"
    return document


class Prometheus:
    """A Prometheus that reads all processes of a stack once a second."""

    def __init__(self, stack: Stack, folder: Path) -> None:
        self._url = f"http://127.0.0.1:{free_port()}"
        settings = dict(line.split("=", 1) for line in (stack.state / "env").read_text().splitlines())
        binds = [settings[f"BERTH_{name}_BIND"] for name in ("WORKER", "BEAT", "BINDER")]
        targets = [stack.admin_url.removeprefix("http://"), stack.probes_url.removeprefix("http://"), *binds]
        configuration = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yaml"],
            "scrape_configs": [
                {
                    "job_name": "berth",
                    "static_configs": [{"targets": targets}],
                    "file_sd_configs": [{"files": [str(read_too(stack))], "refresh_interval": "1s"}],
                }
            ],
        }
        (folder / "rules.yaml").write_text(yaml.safe_dump(shortened()))
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(configuration))
        program = shutil.which("prometheus")
        assert program, "no prometheus: install it (apt-get install prometheus)"
        self._process = subprocess.Popen(
            [
                program,
                f"--config.file={folder / 'prometheus.yaml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={self._url.removeprefix('http://')}",
                "--log.level=warn",
            ]
        )

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(60)

    def _ask(self, path: str, **query: str) -> Any:
        url = f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.loads(answer.read())["data"]
        except OSError:
            return {}

    def firing(self) -> set[str]:
        found = self._ask("alerts").get("alerts", [])
        return {each["labels"]["alertname"] for each in found if each["state"] == "firing"}

    def values(self, query: str) -> list[float]:
        found = self._ask("query", query=query).get("result", [])
        # NaN is what a quotient of nothing gives.
        return [value for each in found if (value := float(each["value"][1])) == value]


def read_too(stack: Stack) -> Path:
    """Return the file that names what Prometheus reads besides."""
    return stack.folder / "read_too.json"


@contextmanager
def another(stack: Secured, probes: str, command: list[str], **settings: str) -> Iterator[None]:
    """Run one more process of this Berth meanwhile, which Prometheus reads, too."""
    database = {"BERTH_DATABASE_URL": f"sqlite:///{stack.state / 'berth.sqlite3'}"}
    environment = database | stack.environment_of_a_replica(stack.folder / f"another-{free_port()}") | settings
    address = f"127.0.0.1:{free_port()}"
    Path(environment["BERTH_STATE_DIR"]).mkdir(parents=True)
    with (stack.folder / "another.log").open("ab") as log:
        more = {name: text for name, text in os.environ.items() if not name.startswith("BERTH_")}
        process = subprocess.Popen(command, env=more | environment | {probes: address}, stdout=log, stderr=log)
        try:
            eventually(lambda: stack.is_up(f"http://{address}"), what="the other one is ready")
            read_too(stack).write_text(json.dumps([{"targets": [address]}]))
            yield
        finally:
            read_too(stack).write_text("[]")
            process.terminate()
            process.wait(60)


@contextmanager
def another_extender(stack: Secured, *within: str, **settings: str) -> Iterator[int]:
    """Run one more extender meanwhile, inside a command of its own if one is given; returns its port."""
    port = free_port()
    command = [*within, sys.executable, "-m", "gunicorn", "-c", "python:scheduler.extender.server.gunicorn_conf"]
    settings = {"BERTH_EXTENDER_BIND": f"127.0.0.1:{port}", **settings}
    with another(stack, "BERTH_EXTENDER_HEALTH_BIND", [*command, "scheduler.extender.wsgi"], **settings):
        yield port


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    stack = Secured(tmp_path_factory.mktemp("watched"))
    give_days(stack, 20)
    with stack:
        stack.publish(RULES, ASSIGNMENT)
        yield stack


@pytest.fixture(scope="module")
def prometheus(stack: Secured, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    prometheus = Prometheus(stack, tmp_path_factory.mktemp("prometheus"))
    try:
        eventually(lambda: len(prometheus.values("up == 1")) == 5, what="all processes are read")
        yield prometheus
    finally:
        prometheus.stop()


def give_days(stack: Secured, days: int) -> None:
    """Sign the extender a certificate that ends in so many days."""
    certificate, key = stack.files.servers.sign("extender", days=days)
    write(stack.files.key, key)
    write(stack.files.cert, certificate)


@contextmanager
def at_rest(*pids: int) -> Iterator[None]:
    """Stop processes meanwhile; what they hold stays held, and nothing is answered."""
    for pid in pids:
        os.killpg(pid, signal.SIGSTOP) if os.getpgid(pid) == pid else os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.killpg(pid, signal.SIGCONT) if os.getpgid(pid) == pid else os.kill(pid, signal.SIGCONT)


def call(stack: Secured, verb: str, body: dict[str, Any], *, times: int = 1, port: int = 0) -> None:
    """Ask the extender as kube-scheduler does, on one connection."""
    context = ssl.create_default_context(cafile=str(stack.files.server_ca))
    context.load_cert_chain(stack.client_cert, stack.client_key)
    connection = http.client.HTTPSConnection("127.0.0.1", port or stack.extender_port, context=context, timeout=60)
    with suppress(OSError, http.client.HTTPException):
        for _ in range(times):
            connection.request("POST", f"/{verb}", json.dumps(body), {"Content-Type": "application/json"})
            connection.getresponse().read()
    connection.close()


def filter_call(number: int) -> dict[str, Any]:
    pod = {"metadata": {"name": "ask", "namespace": "default", "uid": f"u{number}", "labels": {"policy": "watched"}}}
    return {"Pod": pod | {"spec": {"containers": [{"name": "a"}]}}, "NodeNames": ["n1", "node-two"]}


def largest_segment(stack: Secured) -> Path:
    """Find where the extender writes, after it was asked much."""
    return max((stack.state / "spool").rglob("*.seg"), key=lambda path: path.stat().st_size)


Firing = Callable[[], bool]


def until(firing: Firing, act: Callable[[int], object] = lambda _: time.sleep(0.2)) -> None:
    """Do something again and again until it fires: a rate needs more than one."""
    for number in range(100_000):
        if firing():
            return
        act(number)


def processes_stop(stack: Secured, firing: Firing) -> None:
    with at_rest(stack.pid("beat")):
        until(firing)


def the_extender_stops(stack: Secured, firing: Firing) -> None:
    with at_rest(stack.pid("extender")):
        until(firing)


def the_api_server_hangs(stack: Secured, firing: Firing) -> None:
    """A bind waits for it, and isn't done."""
    bind = {"PodName": "nobody", "PodNamespace": "default", "PodUID": "u", "Node": "n1"}
    server = int(stack.cluster_status()["components"]["kube-apiserver"]["pid"])
    with at_rest(server):
        until(firing, lambda _: call(stack, "bind", bind))


def redis_hangs(stack: Secured, firing: Firing) -> None:
    """What is decided waits on disk, and the rule set passes whom it can't count on being recorded."""
    with at_rest(stack.pid("redis")):
        until(firing, lambda number: call(stack, "filter", filter_call(number), times=100))


def its_disk_is_away(stack: Secured, firing: Firing) -> None:
    """An extender ends while Redis hangs, and nobody has what it wrote until its disk is back."""
    aside = stack.folder / "aside"
    assert stack._process is not None
    with at_rest(stack.pid("redis")):
        call(stack, "filter", filter_call(0), times=400)
        behind = "SELECT 1 FROM scheduler_checkpoint WHERE numbered > next_decision + 100"
        eventually(lambda: stack.sql(behind), what="its heartbeat says how many")
        with at_rest(stack._process.pid):  # nobody starts another one meanwhile
            stack.kill("extender")
            folder = largest_segment(stack).parent
            folder.rename(aside)
    until(firing)
    aside.rename(folder)


def the_spool_is_damaged(stack: Secured, firing: Firing) -> None:
    """What waits on disk while Redis hangs is overwritten; the shipper finds it, and later Decisions show what is missing."""
    with at_rest(stack.pid("redis")):
        call(stack, "filter", filter_call(0), times=400)
        with largest_segment(stack).open("r+b") as segment:
            segment.seek(-20_000, os.SEEK_END)
            segment.write(b"\xff" * 1_000)
    until(firing, lambda number: (call(stack, "filter", filter_call(number)), time.sleep(0.2)))


def the_extender_hangs_while_a_revision_is_published(stack: Secured, firing: Firing) -> None:
    with at_rest(stack.pid("extender")):
        path = stack.folder / "slow.yaml"
        path.write_text(yaml.safe_dump_all([RULES | {"metadata": {"name": "another"}}]))
        stack.manage("apply", "--publish", str(path))
        time.sleep(6)
    until(firing)


def the_account_loses_its_rights(stack: Secured, firing: Firing) -> None:
    kubeconfig = stack.state / "kubeconfig"
    before = kubeconfig.read_bytes()
    path = "/api/v1/namespaces/default/serviceaccounts"
    with suppress(APIError):
        body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "nobody"}}
        stack.client.post(path=path, body=json.dumps(body).encode())
    wish = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = json.loads(stack.client.post(path=f"{path}/nobody/token", body=json.dumps(wish).encode()))
    document = yaml.safe_load(before)
    document["users"][0]["user"] = {"token": token["status"]["token"]}
    try:
        kubeconfig.write_text(yaml.safe_dump(document))
        stack.kill("extender")
        until(firing)
    finally:
        kubeconfig.write_bytes(before)
        stack.kill("extender")


def the_certificate_ends_soon(stack: Secured, firing: Firing) -> None:
    give_days(stack, 10)
    until(firing)
    give_days(stack, 20)


def the_certificate_is_no_certificate(stack: Secured, firing: Firing) -> None:
    before = stack.files.cert.read_bytes()
    until(firing, lambda number: (write(stack.files.cert, b"nothing %d" % number), time.sleep(1)))
    write(stack.files.cert, before)


def somebody_else_holds_the_lease(stack: Secured, firing: Firing) -> None:
    settings = dict(line.split("=", 1) for line in (stack.state / "env").read_text().splitlines())
    path = LEASE.format(settings.get("BERTH_LEASE_NAMESPACE", "kube-system"))

    def take(_: int) -> None:
        lease = json.loads(stack.client.get(path=path))
        now = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
        lease["spec"] |= {"holderIdentity": "somebody", "renewTime": now, "leaseDurationSeconds": 30}
        with suppress(APIError):
            stack.client.put(path=path, body=json.dumps(lease).encode())
        time.sleep(0.5)

    until(firing, take)
    stack.client.delete(path=path)


def nodes_are_given_more_than_they_hold(stack: Secured, firing: Firing) -> None:
    containers = [{"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "6"}}}]
    for name in ("full1", "full2"):
        stack.create_pod(name, nodeName="n1", containers=containers)
    until(firing)
    stack.delete_all_pods()


def its_deadline_is_too_short(stack: Secured, firing: Firing) -> None:
    with another_extender(stack, BERTH_EXTENDER_DEADLINE_SECONDS="0.000001") as port:
        until(firing, lambda number: call(stack, "filter", filter_call(number), port=port))


def it_reads_an_old_copy_of_the_database(stack: Secured, firing: Firing) -> None:
    copy = stack.folder / "copy.sqlite3"
    with closing(sqlite3.connect(stack.state / "berth.sqlite3")) as now, closing(sqlite3.connect(copy)) as then:
        now.backup(then)
    with another_extender(stack, BERTH_DATABASE_URL=f"sqlite:///{copy}"):
        path = stack.folder / "unseen.yaml"
        path.write_text(yaml.safe_dump_all([RULES | {"metadata": {"name": "unseen"}}]))
        stack.manage("apply", "--publish", str(path))
        until(firing)


def its_disk_is_full(stack: Secured, firing: Firing) -> None:
    """It has 4 MB, and each call leaves 30 kB that no compression makes smaller; Redis takes none."""
    mount = 'mount -t tmpfs -o size=4m none "$BERTH_STATE_DIR" && exec "$@"'

    def large(number: int) -> dict[str, Any]:
        body = filter_call(number)
        body["Pod"]["metadata"]["annotations"] = {"large": secrets.token_hex(30_000)}
        return body

    with (
        another_extender(stack, "unshare", "-Urm", "sh", "-c", mount, "sh") as port,
        at_rest(stack.pid("redis")),
    ):
        until(firing, lambda number: call(stack, "filter", large(number), port=port))


def checkpoints_are_rewritten(stack: Secured, firing: Firing) -> None:
    """A worker looks each minute, and a rate needs two of its refusals."""
    eventually(lambda: stack.sql("SELECT 1 FROM scheduler_ledgercheckpoint"), seconds=90, what="the ledger is signed")
    stack.manage("shell", "--no-imports", "-c", REWRITE.format("/events", "/stneve"))
    until(firing)
    stack.manage("shell", "--no-imports", "-c", REWRITE.format("/stneve", "/events"))


def the_key_can_be_read_by_everybody(stack: Secured, firing: Firing) -> None:
    key = stack.state / "ledger_key"
    eventually(key.exists, seconds=90, what="the ledger has its key")
    key.chmod(0o644)
    until(firing)
    key.chmod(0o600)


def the_folder_of_checkpoints_is_a_file(stack: Secured, firing: Firing) -> None:
    """A worker publishes what is signed, each minute if the log has grown, and a rate needs two of its failures."""
    folder = stack.state / "checkpoints"
    eventually(folder.is_dir, seconds=90, what="the ledger is signed")
    folder.rename(stack.state / "former")
    folder.touch()
    until(firing, lambda number: call(stack, "filter", filter_call(number)))
    folder.unlink()
    (stack.state / "former").rename(folder)


def a_receiver_refuses_for_half_an_hour(stack: Secured, firing: Firing) -> None:
    stack.manage("shell", "--no-imports", "-c", REFUSED_FOR_LONG.format(url=f"http://127.0.0.1:{free_port()}/"))
    until(firing)
    stack.manage("shell", "--no-imports", "-c", "from scheduler.models import Webhook; Webhook.objects.all().delete()")


def two_binders_have_two_leases(stack: Secured, firing: Firing) -> None:
    settings = {"BERTH_ROLE": "binder", "BERTH_LEASE_NAMESPACE": "default"}
    with another(stack, "BERTH_BINDER_BIND", [sys.executable, "-m", "controlplane.binder"], **settings):
        until(firing)


MADE = {
    # First: what is promised looks back for five minutes, and later faults make it fire, too.
    "BerthCallsSlow": the_api_server_hangs,
    "BerthWatchSilent": the_api_server_hangs,
    "BerthProcessDown": processes_stop,
    "BerthNoExtender": the_extender_stops,
    "BerthCallsFail": the_api_server_hangs,
    "BerthAnswersWithoutDeciding": redis_hangs,
    "BerthPublishIsSlow": the_extender_hangs_while_a_revision_is_published,
    "BerthWatchRefused": the_account_loses_its_rights,
    "BerthDecisionsLost": the_spool_is_damaged,
    "BerthDecisionsMissing": its_disk_is_away,
    "BerthDecisionsWait": redis_hangs,
    "BerthSpoolCorrupt": the_spool_is_damaged,
    "BerthCertificateEnds": the_certificate_ends_soon,
    "BerthCertificateUnusable": the_certificate_is_no_certificate,
    "BerthNobodySchedules": somebody_else_holds_the_lease,
    "BerthNodeOvercommitted": nodes_are_given_more_than_they_hold,
    "BerthDeadlineMissed": its_deadline_is_too_short,
    "BerthRevisionsDiffer": it_reads_an_old_copy_of_the_database,
    "BerthDecisionsUnwritten": its_disk_is_full,
    "BerthDeadLetters": the_spool_is_damaged,
    "BerthLedgerRefused": checkpoints_are_rewritten,
    "BerthLedgerUnsigned": the_key_can_be_read_by_everybody,
    "BerthCheckpointsUnpublished": the_folder_of_checkpoints_is_a_file,
    "BerthWebhookFails": a_receiver_refuses_for_half_an_hour,
    "BerthTwoSchedule": two_binders_have_two_leases,
}


def test_every_alert_has_its_fault() -> None:
    assert sorted(MADE) == sorted(each.name for each in ALERTS)


def test_every_query_of_the_dashboard_returns_data(stack: Secured, prometheus: Prometheus) -> None:
    """After Pods were placed, refused, requeued and bound by both schedulers."""
    stack.create_pod("web1", labels={"policy": "watched"})
    stack.create_pod("much-too-long", labels={"policy": "watched"})
    stack.create_pod("own1", schedulerName="berth")
    for name in ("web1", "own1"):
        stack.wait_for_node(name)
    eventually(lambda: stack.sql("SELECT 1 FROM scheduler_waitingpod"), what="its refusal is stored")
    stack.publish(ANY_NAME)
    stack.wait_for_node("much-too-long")
    asked = {query for row in ROWS.values() for panel in row for query in panel.queries.values()}
    numbers = iter(range(100_000))

    def empty() -> set[str]:
        stack.create_pod(f"more{next(numbers)}", labels={"policy": "watched"}, schedulerName="berth")
        time.sleep(1)
        return {query for query in asked if not prometheus.values(query)}

    eventually(lambda: not empty(), what="every query has values")
    stack.publish(RULES)
    stack.delete_all_pods()


@pytest.mark.parametrize("alert", MADE)
def test_the_alert_rings_in_its_fault_and_goes_silent_after_it(
    stack: Secured, prometheus: Prometheus, alert: str
) -> None:
    eventually(lambda: len(prometheus.values("up == 1")) == 5, what="what the former fault ended is back")
    eventually(lambda: alert not in prometheus.firing(), what=f"{alert} is silent before")
    deadline = time.monotonic() + 240

    def fires() -> bool:
        assert time.monotonic() < deadline, f"{alert} doesn't fire: {prometheus.firing()}"
        return alert in prometheus.firing()

    MADE[alert](stack, fires)
    if alert not in {"BerthCallsSlow", "BerthPublishIsSlow"}:  # what is promised looks back for minutes
        eventually(lambda: alert not in prometheus.firing(), what=f"{alert} is silent again")
