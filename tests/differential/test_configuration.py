"""The lint and the generator of configurations beside the real kube-scheduler, which reads the same files.

`--write-config-to` has kube-scheduler read a file, check it, build its profiles and extenders, and end. No cluster is
needed for that.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from policies.engine.errors import RuleSetError
from policies.manifests import read_documents
from policies.profiles import PLUGINS, import_profile
from scheduler.doctor.catalogue import KINDS
from scheduler.doctor.configuration import Answers, Managed, extenders_of_policy, to_yaml
from scheduler.doctor.findings import lint
from scheduler.doctor.plugins import score_weights
from scheduler.doctor.shape import Profile
from scheduler.doctor.starting import POINTS
from tests.differential.configurations import Maker
from tests.differential.plugins import build
from tests.unit.doctor.cases import CA, CASES, MORE, file
from tests.upstream_configurations import HEAD, SHAPES
from tests.upstream_policies import EVERY_MEMBER, WITH_EXTENDER

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: none, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: none, user: {}}]
contexts: [{name: none, context: {cluster: none, user: none}}]
current-context: none
"""
PARTS = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=any"]
TEXTS = {
    **{f"bad {name}": case.bad for name, case in CASES.items()},
    **{f"good {name}": case.good for name, case in CASES.items()},
    **MORE,
}
_WRITTEN = "written.yaml"
# Files made at random, one start of a process each.
FILES = max(int(os.environ.get("DIFFERENTIAL_CASES", "20000")) // 500, 40)
SEED = int(os.environ.get("DIFFERENTIAL_SEED", "20260"))
# Plugins that Berth has no rule for.
KUBE_SCHEDULERS_ALONE = ("VolumeBinding", "DynamicResources", "NodeDeclaredFeatures")


@pytest.fixture(scope="module")
def kube_scheduler() -> Path:
    program = build().with_name("kube-scheduler")
    assert program.exists()
    return program


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a kubeconfig that leads nowhere, and one file that is CA, certificate and key at once."""
    openssl = shutil.which("openssl")
    assert openssl, "openssl is missing"
    made = tmp_path_factory.mktemp("scheduler")
    subprocess.run(
        [openssl, "req", *PARTS, "-keyout", "key.pem", "-out", CA], cwd=made, check=True, capture_output=True
    )
    (made / CA).write_text((made / CA).read_text() + (made / "key.pem").read_text())
    (made / "kubeconfig").write_text(KUBECONFIG)
    return made


def start(kube_scheduler: Path, folder: Path, text: str, *more: str) -> tuple[bool, str]:
    """Let kube-scheduler take a file; return whether it would start, and what it said."""
    (folder / _WRITTEN).unlink(missing_ok=True)
    (folder / "config.yaml").write_text(text)
    arguments = ["--config=config.yaml", "--secure-port=0", f"--write-config-to={_WRITTEN}", *more]
    done = subprocess.run(
        [kube_scheduler, *arguments], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode == 0 and (folder / _WRITTEN).exists(), done.stderr


def connected(text: str) -> str:
    """Return the file a kubeconfig, which kube-scheduler needs before it looks at the rest."""
    return text.replace("kind: KubeSchedulerConfiguration\n", "kind: KubeSchedulerConfiguration\n" + _CONNECTION, 1)


_CONNECTION = "clientConnection: {kubeconfig: kubeconfig}\n"


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_kube_scheduler_starts_unless_a_finding_says_that_it_does_not(
    kube_scheduler: Path, folder: Path, text: str
) -> None:
    given = text if "clientConnection" in text else connected(text)
    started, said = start(kube_scheduler, folder, given.replace("{qps: 50.5", "{kubeconfig: kubeconfig, qps: 50.5"))
    assert_as_found(given, started, said)


def assert_as_found(text: str, started: bool, said: str) -> None:
    findings = lint(text).findings
    stopping = [finding for finding in findings if KINDS[finding.id].stops or finding.id in STOPS_KUBERNETES_OWN]
    assert started is not bool(stopping), f"{stopping}\n{text}\n{said[-1000:]}"
    assert all(KINDS[finding.id].remedy for finding in stopping)


# Warnings, since a kube-scheduler of another make, or with other feature gates, may start.
STOPS_KUBERNETES_OWN = {"plugin-of-another-make", "feature-gate-needed"}


@pytest.mark.parametrize("trouble", [0.02, 0.1])
def test_kube_scheduler_starts_with_files_made_at_random_unless_a_finding_says_that_it_does_not(
    kube_scheduler: Path, folder: Path, trouble: float
) -> None:
    starts = 0
    for number in range(FILES):
        text = yaml.safe_dump(Maker(f"{SEED} {number}", trouble).configuration(), sort_keys=False)
        started, said = start(kube_scheduler, folder, text)
        assert_as_found(text, started, said)
        starts += started
    assert 0 < starts < FILES


def test_the_extension_points_of_the_plugins_are_those_that_kube_scheduler_gives_them(
    kube_scheduler: Path, folder: Path
) -> None:
    every = yaml.safe_dump([{"plugins": {"multiPoint": {"enabled": [{"name": name} for name in POINTS]}}}])
    started, said = start(kube_scheduler, folder, connected(file("profiles:\n" + every)), "-v=2")
    assert started, said
    (ran,) = re.findall(r'"the scheduler starts to work with those plugins" Plugins=(.*)', said)
    found = {(plugin["Name"], point) for point, each in json.loads(ran).items() for plugin in each["Enabled"] or ()}
    assert {(name, point[0].lower() + point[1:]) for name, point in found} == {
        (name, point) for name, points in POINTS.items() for point in points
    }
    assert set(POINTS) == PLUGINS


ALL_FOUR = ("filter", "prioritize", "bind", "preempt")
ANSWERS = {
    "the defaults": Answers(),
    "all verbs": Answers(verbs=ALL_FOUR),
    "filter only": Answers(verbs=("filter",)),
    "mutual TLS": Answers(
        url_prefix="https://berth.example", ca_file=CA, cert_file=CA, key_file=CA, server_name="berth"
    ),
    "everything": Answers(
        verbs=ALL_FOUR, http_timeout_seconds=2.5, ignorable=True, scheduler_name="other", node_cache_capable=False,
        managed_resources=(Managed("example.com/gpu", ignored_by_scheduler=True), Managed("example.com/fpga")),
        percentage_of_nodes_to_score=50, weight=7,
    ),
}  # fmt: skip


@pytest.mark.parametrize("answers", ANSWERS.values(), ids=ANSWERS)
def test_kube_scheduler_takes_what_is_generated_as_it_is_meant(
    kube_scheduler: Path, folder: Path, answers: Answers
) -> None:
    started, said = start(kube_scheduler, folder, connected(to_yaml(answers)))
    assert started, said
    taken = yaml.safe_load((folder / _WRITTEN).read_text())
    extender = taken["extenders"][0]
    assert extender["urlPrefix"] == answers.url_prefix
    assert {verb for verb in ALL_FOUR if extender.get(f"{verb}Verb") == verb} == set(answers.verbs)
    assert extender.get("nodeCacheCapable", False) is answers.node_cache_capable
    assert extender.get("ignorable", False) is answers.ignorable
    assert extender["httpTimeout"] == f"{answers.http_timeout_seconds:g}s"
    assert extender.get("weight", 0) == (answers.weight if "prioritize" in answers.verbs else 0)
    assert taken["percentageOfNodesToScore"] == answers.percentage_of_nodes_to_score
    assert [profile["schedulerName"] for profile in taken["profiles"]] == [answers.scheduler_name]
    managed = [(each["name"], each.get("ignoredByScheduler", False)) for each in extender.get("managedResources") or []]
    assert managed == [(each.name, each.ignored_by_scheduler) for each in answers.managed_resources]


@pytest.mark.parametrize("policy", [WITH_EXTENDER, EVERY_MEMBER], ids=["the official one", "every member"])
@pytest.mark.parametrize("with_berth", [False, True], ids=["alone", "with Berth"])
def test_kube_scheduler_takes_the_extenders_of_a_policy_as_they_were_meant(
    kube_scheduler: Path, folder: Path, policy: str, with_berth: bool
) -> None:
    extenders = extenders_of_policy(json.loads(policy.replace("ca.pem", CA)))
    text = to_yaml(Answers(verbs=("filter", "prioritize")), extenders, with_berth=with_berth)
    started, said = start(kube_scheduler, folder, connected(text))
    assert started, said
    taken = yaml.safe_load((folder / _WRITTEN).read_text())["extenders"]
    assert len(taken) == len(extenders) + with_berth
    for meant, found in zip(extenders, taken, strict=False):
        for name in ("urlPrefix", "filterVerb", "prioritizeVerb", "bindVerb", "preemptVerb", "weight"):
            assert found.get(name) == meant.get(name)
        for name in ("nodeCacheCapable", "ignorable", "enableHTTPS"):
            assert found.get(name, False) is meant.get(name, False)
        assert found.get("tlsConfig", {}).get("serverName") == meant.get("tlsConfig", {}).get("serverName")
        assert found.get("managedResources") == meant.get("managedResources")
    if policy == EVERY_MEMBER:
        assert [each["httpTimeout"] for each in taken][:2] == ["1.5s", "5s"]


def test_the_default_score_plugins_have_the_weights_that_kube_scheduler_gives_them(
    kube_scheduler: Path, folder: Path
) -> None:
    started, said = start(kube_scheduler, folder, connected(file("")))
    assert started, said
    enabled = yaml.safe_load((folder / _WRITTEN).read_text())["profiles"][0]["plugins"]["multiPoint"]["enabled"]
    weights = {plugin["name"]: plugin["weight"] for plugin in enabled if plugin.get("weight")}
    assert score_weights(Profile()) == weights


@pytest.mark.parametrize("text", SHAPES.values(), ids=SHAPES)
def test_the_rules_made_of_a_profile_are_what_kube_scheduler_runs(
    kube_scheduler: Path, folder: Path, text: str
) -> None:
    started, said = start(kube_scheduler, folder, connected(HEAD + text), "-v=2")
    assert started, said
    ran = [
        json.loads(each) for each in re.findall(r'"the scheduler starts to work with those plugins" Plugins=(.*)', said)
    ]
    (located,) = read_documents(HEAD + text, "x.yaml")
    made = [import_profile(each.document, name="x").spec for each in located.items()]
    assert len(ran) == len(made)
    for plugins, spec in zip(ran, made, strict=True):
        filters = [plugin["Name"] for plugin in plugins["Filter"]["Enabled"] or ()]
        scores = {plugin["Name"]: plugin["Weight"] for plugin in plugins["Score"]["Enabled"] or ()}
        assert [name for name in filters if name not in KUBE_SCHEDULERS_ALONE] == [
            each.builtin for each in spec.filters
        ]
        for alone in KUBE_SCHEDULERS_ALONE:
            scores.pop(alone, None)
        assert scores == {each.builtin: each.weight for each in spec.scores}


def test_no_rules_are_made_of_arguments_with_which_kube_scheduler_does_not_start(
    kube_scheduler: Path, folder: Path
) -> None:
    starts = 0
    for number in range(FILES):
        profile = {"pluginConfig": [Maker(f"arguments {SEED} {number}", trouble=0.3).rule_arguments()]}
        document = yaml.safe_load(HEAD) | {"profiles": [profile]}
        started, _ = start(kube_scheduler, folder, connected(yaml.safe_dump(document)))
        starts += started
        if not started:
            with pytest.raises(RuleSetError):
                import_profile(document, name="x")
    assert 0 < starts < FILES


def test_the_rules_ignore_the_resources_that_kube_scheduler_leaves_to_extenders(
    kube_scheduler: Path, folder: Path
) -> None:
    managed = [{"name": "example.com/gpu", "ignoredByScheduler": True}, {"name": "example.com/fpga"}]
    extender = {"urlPrefix": "http://127.0.0.1:1", "filterVerb": "filter", "managedResources": managed}
    args = {"ignoredResources": ["example.com/other"], "ignoredResourceGroups": ["example.org"]}
    document = yaml.safe_load(HEAD) | {
        "extenders": [extender],
        "profiles": [{"pluginConfig": [{"name": "NodeResourcesFit", "args": args}]}],
    }
    started, said = start(kube_scheduler, folder, connected(yaml.safe_dump(document)))
    assert started, said
    plugins = yaml.safe_load((folder / _WRITTEN).read_text())["profiles"][0]["pluginConfig"]
    (taken,) = (each["args"] for each in plugins if each["name"] == "NodeResourcesFit")
    filters = import_profile(document, name="x").spec.filters
    (made,) = (rule.arguments for rule in filters if rule.builtin == "NodeResourcesFit")
    assert made == {name: taken[name] for name in ("ignoredResources", "ignoredResourceGroups")}
