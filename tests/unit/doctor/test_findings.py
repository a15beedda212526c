"""Every finding of the lint: what brings it up, what doesn't, and where it points to."""

from unittest.mock import Mock

import pytest

from scheduler.doctor import starting
from scheduler.doctor.catalogue import KINDS, Finding, is_ok
from scheduler.doctor.findings import is_extended_resource, lint
from scheduler.doctor.published import Known
from tests.unit.doctor.cases import CALLED, CASES, HEAD, MORE, RULES, Case, berth, extender, extenders, file, other


def found(text: str, known: Known | None = None) -> dict[str, Finding]:
    return {finding.id: finding for finding in lint(text, known).findings}


def test_every_kind_of_finding_has_its_case() -> None:
    assert set(CASES) == set(KINDS)


@pytest.mark.parametrize("name", CASES)
def test_the_smallest_bad_file_brings_the_finding_up_with_words_for_people(name: str) -> None:
    case: Case = CASES[name]
    finding = found(case.bad, case.known)[name]
    assert finding.severity == KINDS[name].severity
    assert finding.happens
    assert finding.remedy
    assert finding.happens.endswith(".")


@pytest.mark.parametrize("name", CASES)
def test_the_file_beside_it_does_not_bring_the_finding_up(name: str) -> None:
    case: Case = CASES[name]
    assert name not in found(case.good, case.known_good or case.known)


@pytest.mark.parametrize("text", [*MORE.values(), *(case.bad for case in CASES.values())])
def test_whatever_is_in_a_file_it_is_linted_to_the_end(text: str) -> None:
    for finding in lint(text).findings:
        assert finding.id in KINDS


def test_a_finding_points_to_its_place_and_line() -> None:
    text = HEAD + "extenders:\n- urlPrefix: http://127.0.0.1:8010\n  filterVerb: filter\n  nodeCacheCapable: false\n"
    finding = found(text)["node-cache-capable-false"]
    assert (finding.place, finding.line) == ("extenders[0].nodeCacheCapable", 6)


def test_a_finding_about_what_is_missing_points_to_what_should_hold_it() -> None:
    text = HEAD + "extenders:\n- urlPrefix: http://127.0.0.1:8010\n  filterVerb: filter\n"
    finding = found(text)["timeout-missing"]
    assert (finding.place, finding.line) == ("extenders[0].httpTimeout", 4)


@pytest.mark.parametrize(
    ("profiles", "place"),
    [("", "profiles"), ("profiles: [{}]", "profiles[0].schedulerName"), ("profiles: [{schedulerName: a}]", "")],
)
def test_a_profile_without_a_name_is_the_default_one_which_may_be_berths(profiles: str, place: str) -> None:
    finding = found(berth() + profiles, Known(own_schedulers=("berth", "default-scheduler"))).get(
        "profile-name-is-berths"
    )
    assert (finding.place if finding else "") == place


def test_arguments_that_no_plugin_reads_come_with_the_name_that_may_be_meant() -> None:
    finding = found(CASES["arguments-unread"].bad)["arguments-unread"]
    assert (finding.place, finding.detail) == ("profiles[0].pluginConfig[0].name", "Did you mean NodeResourcesFit?")


@pytest.mark.parametrize("name", ["a key with a passphrase", "a key with a passphrase in OpenSSL's own form"])
def test_a_key_with_a_passphrase_is_one_that_kube_scheduler_cannot_read(name: str) -> None:
    finding = found(MORE[name])["tls-unreadable"]
    assert (finding.place, finding.detail) == (
        "extenders[0].tlsConfig.keyData", "PRIVATE KEY without a passphrase is missing.",
    )  # fmt: skip


def test_nobody_is_told_to_bind_by_berth_where_another_extender_binds() -> None:
    findings = found(extenders(other("bindVerb: bind"), extender()), RULES)
    assert "bind-verb-missing" not in findings
    assert findings["bound-elsewhere"].place == "extenders[1].bindVerb"
    assert findings["bound-elsewhere"].detail == "extenders[0] binds."


def test_one_entry_of_berths_that_binds_is_enough() -> None:
    findings = found(extenders(extender("bindVerb: bind"), extender()), RULES)
    assert not {"bind-verb-missing", "bound-elsewhere"} & set(findings)


def test_what_stops_kube_scheduler_comes_first() -> None:
    assert lint(berth("nodeCacheCapable: false") + "percentageOfNodesToScore: 101").findings[0].id == (
        "percentage-out-of-range"
    )


def test_errors_come_before_warnings() -> None:
    severities = [finding.severity for finding in lint(berth("ignorable: true, nodeCacheCapable: false")).findings]
    assert severities == sorted(severities, key=["error", "warning", "note"].index)


@pytest.mark.parametrize(
    ("member", "nearest"),
    [("filterverb", "filterVerb"), ("nodeCacheCapabel", "nodeCacheCapable"), ("enableHttps", "enableHTTPS")],
)
def test_an_unknown_member_is_answered_by_the_one_that_may_be_meant(member: str, nearest: str) -> None:
    assert found(berth(f"{member}: x"))["unknown-member"].detail == f"Did you mean {nearest}?"


def test_a_member_like_no_other_is_answered_by_all_that_there_are() -> None:
    assert "urlPrefix" in found(berth("zzzz: x"))["unknown-member"].detail


def test_what_does_not_fit_hides_nothing_else() -> None:
    findings = found(berth("weight: heavy, nodeCacheCapable: 'yes please', bogus: 1, ignorable: true"))
    assert {"wrong-type", "unknown-member", "node-cache-capable-false", "ignorable-true"} <= set(findings)


@pytest.mark.parametrize(
    "url",
    [
        "https://me:hunter2hunter2@berth.example:8010",
        "https://hunter2hunter2@berth.example:8010",
        "https://berth.example:8010/?token=hunter2hunter2",
        "https://berth.example:8010/hunter2hunter2hunter2",
        "https://berth.example:8010/token/hunter2hunter2",
        "http://[hunter2hunter2@::1",
    ],
)
def test_a_secret_in_the_address_is_found_and_never_repeated(url: str) -> None:
    other = extender("", "https://b.example")
    for text in (berth(url=url), extenders(extender("", url), other, other)):
        assert "url-credentials" in found(text)
        assert "hunter2" not in repr(lint(text).findings)


def test_a_secret_in_a_verb_is_found_and_never_repeated() -> None:
    findings = found(berth("filterVerb: 'filter?token=hunter2hunter2'"))
    assert {"url-credentials", "verb-query"} <= set(findings)
    assert "hunter2" not in repr(findings)


def test_a_key_of_a_wrong_type_is_never_repeated() -> None:
    assert "hunter2" not in repr(lint(berth("tlsConfig: {keyData: [hunter2]}")).findings)


@pytest.mark.parametrize(
    "url", ["https://berth.example:8010/clusters/eu-west-1/berth", "https://berth-extender.team-scheduling2.svc:8010"]
)
def test_an_address_of_words_is_no_secret(url: str) -> None:
    assert "url-credentials" not in found(berth(url=url))


class TestWhichExtenderIsBerths:
    OTHER = extender("", "https://other.example:1")

    def test_the_only_one_is(self) -> None:
        assert lint(extenders(self.OTHER)).berths == [0]

    def test_of_several_the_one_at_a_known_address_is(self) -> None:
        text = extenders(extender("", "https://a.example"), extender("", "https://B.example:443"))
        assert lint(text, Known(urls=("https://b.example/",))).berths == [1]

    def test_loopback_is_one_address_whatever_it_is_called(self) -> None:
        text = extenders(extender("", "http://localhost:9999"), self.OTHER)
        assert lint(text, Known(urls=("http://127.0.0.1:9999",))).berths == [0]

    def test_else_its_name_or_its_port_tells(self) -> None:
        by_name, by_port = extender("", "https://berth.example"), extender("", "https://10.0.0.1:8010")
        assert lint(extenders(self.OTHER, by_name)).berths == [1]
        assert lint(extenders(by_port, self.OTHER)).berths == [0]

    def test_settings_of_others_are_left_to_them(self) -> None:
        text = extenders(extender(), extender("ignorable: true, filterVerb: check", "http://other.example/path"))
        assert {"plain-http", "url-path", "verb-not-served", "ignorable-true"}.isdisjoint(found(text))


class TestSampling:
    SELECTIVE = Known(refuses=True)

    def test_the_value_of_a_profile_goes_before_the_one_of_the_file(self) -> None:
        text = berth() + "percentageOfNodesToScore: 100\nprofiles: [{percentageOfNodesToScore: 50}]"
        assert found(text, self.SELECTIVE)["sampling"].place == "profiles[0].percentageOfNodesToScore"
        text = berth() + "percentageOfNodesToScore: 50\nprofiles: [{percentageOfNodesToScore: 100}]"
        assert "sampling" not in found(text, self.SELECTIVE)

    def test_a_profile_without_a_value_has_the_one_of_the_file(self) -> None:
        text = berth() + "profiles: [{schedulerName: a, percentageOfNodesToScore: 100}, {schedulerName: b}]"
        assert found(text, self.SELECTIVE)["sampling"].place == "percentageOfNodesToScore"

    def test_zero_is_adaptive(self) -> None:
        text = berth() + "percentageOfNodesToScore: 0"
        assert "falls from 50 %" in found(text, self.SELECTIVE)["sampling"].detail

    def test_it_harms_nobody_when_no_rule_refuses(self) -> None:
        assert "sampling" not in found(berth(), Known(refuses=False))

    def test_it_says_so_when_the_rules_are_not_known(self) -> None:
        assert "isn't known" in found(berth())["sampling"].detail


class TestWeight:
    def weighed(self, profile: str, weight: int = 140) -> dict[str, Finding]:
        return found(berth(f"weight: {weight}, {CALLED}") + f"profiles: [{profile}]")

    def test_the_default_profile_reaches_1400(self) -> None:
        assert "default-scheduler reaches 1,400" in self.weighed("{}")["weight-partly-outvoted"].detail

    def test_a_disabled_plugin_does_not_count(self) -> None:
        profile = "{plugins: {score: {disabled: [{name: ImageLocality}]}}}"
        assert "weight-partly-outvoted" not in self.weighed(profile)

    def test_without_any_plugin_the_smallest_weight_decides(self) -> None:
        for point in ("score", "multiPoint"):
            findings = self.weighed(f"{{plugins: {{{point}: {{disabled: [{{name: '*'}}]}}}}}}", weight=1)
            assert {"weight-outvoted", "weight-partly-outvoted"}.isdisjoint(findings)

    def test_a_plugin_that_is_enabled_again_counts_by_its_new_weight(self) -> None:
        profile = (
            "{plugins: {score: {disabled: [{name: '*'}], enabled: [{name: NodeAffinity, weight: 20}, {name: Own}]}}}"
        )
        assert "reaches 2,100" in self.weighed(profile)["weight-partly-outvoted"].detail

    def test_a_default_plugin_with_another_weight_counts_once(self) -> None:
        profile = "{plugins: {multiPoint: {enabled: [{name: NodeAffinity, weight: 20}]}}}"
        assert "reaches 3,200" in self.weighed(profile)["weight-partly-outvoted"].detail

    def test_a_plugin_that_only_filters_does_not_count(self) -> None:
        profile = "{plugins: {multiPoint: {disabled: [{name: '*'}], enabled: [{name: NodeName}, {name: Own}]}}}"
        assert "weight-partly-outvoted" not in self.weighed(profile, weight=11)
        assert "reaches 100" in self.weighed(profile, weight=10)["weight-partly-outvoted"].detail

    def test_the_heaviest_profile_is_the_one_that_counts(self) -> None:
        profiles = "{schedulerName: a, plugins: {score: {disabled: [{name: '*'}]}}}, {schedulerName: b}"
        assert "profile b reaches" in self.weighed(profiles)["weight-partly-outvoted"].detail


def test_the_deadline_is_the_one_that_is_set() -> None:
    assert "timeout-short" in found(berth("httpTimeout: 2s"), Known(deadline_seconds=2.5))
    assert "timeout-short" not in found(berth("httpTimeout: 2s"), Known(deadline_seconds=1.0))


def test_no_timeout_below_the_deadline_that_is_set_is_advised() -> None:
    finding = found(berth("httpTimeout: 3s"), Known(deadline_seconds=4.0))["timeout-short"]
    assert "a second or more above BERTH_EXTENDER_DEADLINE_SECONDS" in finding.remedy
    assert not finding.remedy.endswith("3s.")


def test_the_default_timeout_can_be_too_short_too() -> None:
    assert "timeout-short" in found(berth("httpTimeout: 0s"), Known(deadline_seconds=6.0))


def test_verbs_that_are_swapped_are_found() -> None:
    findings = [
        finding for finding in lint(berth("filterVerb: prioritize")).findings if finding.id == "verb-not-served"
    ]
    assert [finding.place for finding in findings] == ["extenders[0].filterVerb"]


@pytest.mark.parametrize("verb", ["/filter", "//filter", "/", "filter//"])
def test_a_slash_before_a_verb_is_not_served(verb: str) -> None:
    assert "verb-not-served" in found(berth(f"filterVerb: {verb}"))


def test_two_documents_are_two_also_when_the_second_is_none_of_kube_schedulers() -> None:
    assert found(berth() + "---\na: 1")["several-documents"].detail == "It has 2."


@pytest.mark.parametrize("text", ["", "---\n---\n", "[]", "word"])
def test_a_file_without_an_object_is_said_to_be_none(text: str) -> None:
    assert list(found(text)) == ["wrong-kind"]


def test_a_file_that_cannot_be_read_names_itself_and_the_line() -> None:
    linted = lint(HEAD + "a: [\n", source="scheduler.yaml")
    assert linted.findings[0].detail.startswith("scheduler.yaml:4: ")
    assert linted.configuration is None


def test_notes_and_warnings_are_ok_unless_it_is_strict() -> None:
    warned = lint(berth("ignorable: true")).findings
    assert is_ok(warned)
    assert not is_ok(warned, strict=True)
    assert not is_ok(lint(berth("nodeCacheCapable: false")).findings)
    assert is_ok(lint(berth() + "percentageOfNodesToScore: 100").findings, strict=True)


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("example.com/gpu", True), ("nvidia.com/gpu.shared_1", True), ("cpu", False), ("gpu", False),
        ("kubernetes.io/x", False), ("a.kubernetes.io/x", False), ("requests.example.com/gpu", False),
        ("Example.com/gpu", False), ("example.com/", False), ("/gpu", False), ("a/b/c", False),
        ("example.com/" + "x" * 64, False), ("x" * 250 + "/gpu", False), ("hugepages-2Mi", False),
    ],
)  # fmt: skip
def test_an_extended_resource_is_told_by_its_name(name: str, is_one: bool) -> None:
    assert is_extended_resource(name) is is_one


def test_a_plugins_arguments_may_be_anything() -> None:
    managed = "managedResources: [{name: example.com/gpu, ignoredByScheduler: true}]"
    text = berth(managed) + "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {ignoredResources: word}}]}]"
    assert "managed-resources-replace-ignored" not in found(text)


def test_a_plugins_arguments_may_be_objects_in_place_of_names() -> None:
    managed = "managedResources: [{name: example.com/gpu, ignoredByScheduler: true}]"
    text = berth(managed) + "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {ignoredResources: [{a: 1}]}}]}]"
    assert "managed-resources-replace-ignored" in found(text)


def test_an_extender_that_is_null_is_an_empty_one() -> None:
    assert {"url-unusable", "no-verb"} <= set(found(file("extenders: [null]")))


def test_profiles_that_name_no_plugins_are_not_merged_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    merge = Mock(wraps=starting._merge)
    monkeypatch.setattr(starting, "_merge", merge)
    told = lint(
        file("profiles: [{}, {}, {plugins: {bind: {}}}, {plugins: {bind: {enabled: [{name: DefaultBinder}]}}}]")
    ).findings
    assert sum(finding.id == "profile-name-missing" for finding in told) == 4
    merge.assert_called_once()
