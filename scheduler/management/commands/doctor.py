"""`manage.py doctor`: makes and lints kube-scheduler's configuration, proves the wiring, checks every part.

doctor                 checks every part, and changes nothing
doctor configuration   writes a KubeSchedulerConfiguration from answers, or adds Berth to an existing one; asks on a terminal
doctor lint FILE       reports what kube-scheduler will do with a configuration
doctor wiring          creates a canary Pod and reports which of kube-scheduler's calls for it reach Berth
doctor rbac            prints the rights of Berth's processes as a manifest, for the live rules
doctor rights          asks the API server which of them their accounts lack
doctor alerts          prints Prometheus' alert and recording rules
doctor dashboard       prints Grafana's dashboard
"""

import contextlib
import signal
import sys
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from django.conf import settings
from django.core.management.base import CommandError

from policies.engine.decision import CompiledRevision
from policies.engine.errors import RuleSetError
from policies.management.command import BerthCommand
from policies.management.commands.importpolicy import read_only_document
from policies.manifests import to_json
from policies.publishing import current_revision
from policies.wording import counted
from scheduler.cluster.client import connect
from scheduler.cluster.errors import APIError
from scheduler.doctor.alerts import prometheus_rule, rule_file
from scheduler.doctor.canary import Report, VerbReport, Wish, run
from scheduler.doctor.catalogue import KINDS, Finding, is_ok
from scheduler.doctor.checkup import Checkup, check, known
from scheduler.doctor.configuration import VERBS, Answers, Managed, added_to, extenders_of_policy, to_yaml
from scheduler.doctor.dashboard import dashboard_file
from scheduler.doctor.findings import lint
from scheduler.doctor.parts import MARKS
from scheduler.doctor.reviews import lacking
from scheduler.doctor.rights import COMPONENTS, READABLE_KINDS, manifest

_VERB_MARKS = {"seen": "✓", "missing": "✗", "not asked": "·"}
_DEFAULTS = Answers()
# Answers that concern all of kube-scheduler, not Berth's extender.
_OF_THE_WHOLE = frozenset({"scheduler_name", "percentage_of_nodes_to_score", "kubeconfig"})


class Command(BerthCommand):
    """The doctor."""

    help = "Check every part of Berth; make or lint kube-scheduler's configuration. Exit 1 if something is wrong."

    # Whether output was written: it may contain the fault.
    _has_written = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the sub-commands and arguments."""
        _add_output(parser)
        _add_checkup(parser)
        parts = parser.add_subparsers(dest="part")
        _add_configuration(parts.add_parser("configuration", help="write a KubeSchedulerConfiguration"))
        _add_lint(parts.add_parser("lint", help="report what kube-scheduler will do with a configuration"))
        _add_wiring(parts.add_parser("wiring", help="check with a canary Pod that kube-scheduler calls Berth"))
        _add_rbac(parts.add_parser("rbac", help="print the RBAC manifest of Berth's processes"))
        _add_rights(parts.add_parser("rights", help="list the rights that Berth's accounts lack"))
        alerts = parts.add_parser("alerts", help="print Prometheus' alert and recording rules")
        alerts.add_argument(
            "--operator",
            metavar="NAMESPACE",
            help="print them as a PrometheusRule of the Prometheus operator, in this namespace",
        )
        parts.add_parser("dashboard", help="print Grafana's dashboard")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the requested sub-command."""
        del args
        part = {
            None: self._checkup,
            "configuration": self._configuration,
            "lint": self._lint,
            "wiring": self._wiring,
            "rbac": self._rbac,
            "rights": self._rights,
            "alerts": self._alerts,
            "dashboard": self._dashboard,
        }[options["part"]]
        try:
            part(options)
        except CommandError as error:
            if self._has_written:
                raise
            raise self.refused(str(error), options["output"]) from error

    def _checkup(self, options: dict[str, Any]) -> None:
        found = check(scheduler_config=options["scheduler_config"], urls=tuple(options["berth_url"]))
        self._write(options, {"ok": found.ok} | msgspec.to_builtins(found), _checkup_text(found))
        if not found.ok:
            raise CommandError("something is wrong", returncode=1)  # noqa: EM101 - constant

    def _lint(self, options: dict[str, Any]) -> None:
        text, source = _read(options["file"])
        findings = lint(text, known(tuple(options["berth_url"])), source=source).findings
        ok = is_ok(findings, strict=options["strict"])
        shown = "\n".join(_finding_lines(findings, source)) or "nothing found"
        self._write(options, {"ok": ok, "findings": msgspec.to_builtins(findings)}, shown)
        if not ok:
            count = sum(finding.severity != "note" for finding in findings)
            message = f"{counted(count, 'finding')} to act on"
            raise CommandError(message, returncode=1)

    def _configuration(self, options: dict[str, Any]) -> None:
        given = {name: options[name] for name in Answers.__struct_fields__ if options.get(name) is not None}
        if options["add_to"]:
            self._add(options, given)
            return
        policy: Path | None = options["from_policy"]
        if not given and policy is None and sys.stdin.isatty():
            given = self._ask()
        answers = _answers(given)
        with_berth = policy is None or bool(given.keys() - _OF_THE_WHOLE)
        others = self._extenders_of(policy) if policy else []
        text = to_yaml(answers, others, with_berth=with_berth)
        urls = (answers.url_prefix,) if with_berth else ()
        findings = lint(text, known(urls), source="the configuration").findings
        if policy:
            # The lint takes an only extender for Berth's; of findings about others only those that stop the start count.
            own = f"extenders[{len(others)}]"
            findings = [
                each for each in findings if KINDS[each.id].stops or (with_berth and each.place.startswith(own))
            ]
        self._tell(options, text, findings)

    def _add(self, options: dict[str, Any], given: dict[str, Any]) -> None:
        """Add Berth to an existing configuration."""
        if options["from_policy"] or given.keys() & _OF_THE_WHOLE:
            message = "the file already has the settings that concern all of kube-scheduler: leave these options out"
            raise CommandError(message, returncode=1)
        text, source = _read(options["add_to"])
        before, answers = lint(text, known(()), source=source), _answers(given)
        faults = [each for each in before.findings if KINDS[each.id].stops or each.id == "several-documents"]
        if before.configuration is None or faults:
            raise CommandError("\n".join(_finding_lines(faults, source)), returncode=1)
        text, own = added_to(text, answers), f"extenders[{len(before.configuration.extenders)}]"
        findings = lint(text, known((answers.url_prefix,)), source=source).findings
        # Earlier faults are reported, but don't keep Berth from being added.
        judged = [each for each in findings if KINDS[each.id].stops or each.place.startswith(own)]
        self._tell(options, text, findings, judged)

    def _tell(
        self, options: dict[str, Any], text: str, findings: list[Finding], judged: list[Finding] | None = None
    ) -> None:
        """Write a configuration, and the findings about it."""
        ok = is_ok(findings if judged is None else judged)
        self._write(
            options,
            {"ok": ok, "configuration": text, "findings": msgspec.to_builtins(findings)},
            text.rstrip("\n"),
        )
        told = [finding for finding in findings if finding.severity != "note"]
        if options["output"] == "text" and told:
            self.stderr.write("\n".join(_finding_lines(told, "the configuration")))
        if not ok:
            raise CommandError("kube-scheduler shouldn't run with this configuration", returncode=1)  # noqa: EM101 - constant

    def _extenders_of(self, policy: Path) -> list[dict[str, Any]]:
        located = read_only_document(policy)
        try:
            extenders = extenders_of_policy(located.document)
        except RuleSetError as error:
            raise CommandError("\n".join(map(located.describe, error.faults)), returncode=1) from error
        if {"predicates", "priorities"} & located.document.keys():
            self.stderr.write(
                "The configuration leaves out predicates and priorities: convert them to a RuleSet with importpolicy."
            )
        return extenders

    def _ask(self) -> dict[str, Any]:
        """Ask on the terminal. Questions go to standard error, so that the YAML can be redirected to a file."""
        answers: dict[str, Any] = {}
        defaults = _answers({})
        for name, question, said, read in _QUESTIONS:
            if name in {"cert_file", "key_file", "server_name"} and not answers.get("ca_file"):
                continue
            while name not in answers:
                shown = getattr(defaults, name) if said is None else said
                self.stderr.write(f"{question} [{shown}]: ", ending="")
                self.stderr.flush()
                answer = sys.stdin.readline()
                try:
                    answers[name] = read(answer.strip()) if answer.strip() else getattr(defaults, name)
                except (ArgumentTypeError, ValueError) as error:
                    self.stderr.write(f"  {error}")
        return answers

    def _wiring(self, options: dict[str, Any]) -> None:
        wish = Wish(
            namespace=options["namespace"],
            scheduler_name=options["scheduler_name"],
            verbs=options["verbs"],
            timeout_seconds=options["timeout"],
            image=options["image"],
        )
        client = connect()
        with _ended_by_sigterm():
            report = run(client, wish)
        self._write(options, msgspec.to_builtins(report), "\n".join(_report_lines(report)))
        if not report.ok:
            raise CommandError("the wiring isn't proven", returncode=1)  # noqa: EM101 - constant

    def _rbac(self, options: dict[str, Any]) -> None:
        read = READABLE_KINDS if options["all"] else _read_by_live_rules()
        text = manifest(
            options["namespace"], read, options["component"] or COMPONENTS, reviews_tokens=_reviews_tokens()
        )
        self._write(options, {"ok": True, "manifest": text}, text.rstrip("\n"))

    def _rights(self, options: dict[str, Any]) -> None:
        client = connect()
        try:
            lacks = lacking(client, options["namespace"], _read_by_live_rules(), reviews_tokens=_reviews_tokens())
        except APIError as error:
            message = f"the API server refuses or can't be reached: {error}. Your account needs create on subjectaccessreviews."
            raise CommandError(message, returncode=1) from error
        lines = [f"{each.component}: may not {each.verb} {each.resource}: {each.reason}" for each in lacks]
        self._write(
            options,
            {"ok": not lacks, "lacks": msgspec.to_builtins(lacks)},
            "\n".join(lines) or "every process has the rights that it needs",
        )
        if lacks:
            raise CommandError("apply what `doctor rbac` prints", returncode=1)  # noqa: EM101 - constant

    def _alerts(self, options: dict[str, Any]) -> None:
        self.stdout.write(prometheus_rule(options["operator"]) if options["operator"] else rule_file(), ending="")

    def _dashboard(self, options: dict[str, Any]) -> None:
        del options
        self.stdout.write(dashboard_file())

    def _write(self, options: dict[str, Any], document: dict[str, Any], text: str) -> None:
        self.stdout.write(to_json(document) if options["output"] == "json" else text)
        self._has_written = True


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Make SIGTERM end the block as Ctrl-C does: the canary is deleted on the way out."""

    def end(*_: object) -> None:
        sys.exit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


# Arguments


def _add_output(parser: ArgumentParser, **default: Any) -> None:
    parser.add_argument("--output", choices=["text", "json"], **(default or {"default": "text"}))


def _add_berth_urls(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--berth-url",
        action="append",
        default=[],
        metavar="URL",
        help="the URL of Berth's extender, if the configuration has several extenders; may be repeated",
    )


def _add_checkup(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--scheduler-config",
        type=Path,
        metavar="FILE",
        help="kube-scheduler's configuration file; default: BERTH_SCHEDULER_CONFIG",
    )
    _add_berth_urls(parser)


def _read(path: Path) -> tuple[str, str]:
    """Return a file's text, and its name for people; `-` is standard input."""
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        message = f"{path} can't be read: {error}"
        raise CommandError(message, returncode=1) from error
    return text, "standard input" if str(path) == "-" else str(path)


def _add_configuration(parser: ArgumentParser) -> None:
    _add_output(parser, default=SUPPRESS)
    parser.add_argument(
        "--from-policy", type=Path, metavar="FILE",
        help="a classic scheduler Policy whose extenders are copied; Berth's own is added only if another option describes it",
    )  # fmt: skip
    parser.add_argument(
        "--add-to", type=Path, metavar="FILE",
        help="an existing KubeSchedulerConfiguration, to which Berth is added as the last extender; - for standard input",
    )  # fmt: skip
    _add_extender(parser)
    parser.add_argument("--scheduler-name", help=f"the profile's schedulerName (default {_DEFAULTS.scheduler_name})")
    parser.add_argument(
        "--percentage-of-nodes-to-score", type=int, metavar="PERCENT",
        help=f"the share of nodes that Berth is asked about (default {_DEFAULTS.percentage_of_nodes_to_score})",
    )  # fmt: skip
    parser.add_argument("--kubeconfig", help="kube-scheduler's kubeconfig")


def _add_extender(parser: ArgumentParser) -> None:
    """Add the answers about Berth's entry in `extenders`."""
    parser.add_argument(
        "--url-prefix", help="Berth's address (default: this machine, at the port of BERTH_EXTENDER_BIND)"
    )
    parser.add_argument("--verbs", type=_verbs, help="separated by commas: filter,prioritize,bind,preempt")
    parser.add_argument(
        "--node-cache-capable",
        type=_truth,
        metavar="true|false",
        help="send only the names of nodes (default true)",
    )
    parser.add_argument(
        "--weight",
        type=int,
        help=f"the extender's weight: one point of Berth's score counts ten times this (default {_DEFAULTS.weight})",
    )
    parser.add_argument(
        "--http-timeout", dest="http_timeout_seconds", type=_seconds, metavar="SECONDS",
        help=f"how long kube-scheduler waits for an answer (default {_DEFAULTS.http_timeout_seconds:g})",
    )  # fmt: skip
    parser.add_argument(
        "--ignorable", type=_truth, metavar="true|false",
        help="true: place Pods without the rules while Berth is down (default false)",
    )  # fmt: skip
    for name, what in (
        ("ca", "the CA that signed Berth's certificate"),
        ("cert", "kube-scheduler's client certificate"),
        ("key", "the key of kube-scheduler's client certificate"),
    ):
        parser.add_argument(f"--{name}-file", metavar="FILE", help=f"{what}; a path on kube-scheduler's machine")
    parser.add_argument("--server-name", help="the name in Berth's certificate, if it differs from the host")
    parser.add_argument(
        "--managed-resource", dest="managed_resources", action="append", type=_managed,
        metavar="NAME[:ignored]", help="ask Berth only about Pods with this extended resource",
    )  # fmt: skip


def _add_lint(parser: ArgumentParser) -> None:
    _add_output(parser, default=SUPPRESS)
    parser.add_argument("file", type=Path, metavar="FILE", help="a KubeSchedulerConfiguration; - for standard input")
    parser.add_argument("--strict", action="store_true", help="exit 1 for warnings, too")
    _add_berth_urls(parser)


def _add_wiring(parser: ArgumentParser) -> None:
    wish = Wish()
    _add_output(parser, default=SUPPRESS)
    parser.add_argument(
        "--namespace", default=wish.namespace, help=f"the canary's namespace (default {wish.namespace})"
    )
    parser.add_argument(
        "--scheduler-name",
        default=wish.scheduler_name,
        help=f"the canary's schedulerName (default {wish.scheduler_name})",
    )
    parser.add_argument(
        "--verbs", type=_verbs, default=wish.verbs, help="verbs that Berth must receive (default filter,prioritize)"
    )
    parser.add_argument(
        "--timeout", type=_seconds, default=wish.timeout_seconds, metavar="SECONDS",
        help=f"how long to wait for the verbs (default {wish.timeout_seconds:g})",
    )  # fmt: skip
    parser.add_argument("--image", default=wish.image, help="the canary's image; it is never pulled")


def _add_rbac(parser: ArgumentParser) -> None:
    _add_output(parser, default=SUPPRESS)
    _add_namespace(parser)
    parser.add_argument(
        "--all",
        action="store_true",
        help="rights for all kinds that rules can read, not only those that live rules read",
    )
    parser.add_argument(
        "--component",
        action="append",
        choices=list(COMPONENTS),
        help="only this process; may be repeated; default: all",
    )


def _add_rights(parser: ArgumentParser) -> None:
    _add_output(parser, default=SUPPRESS)
    _add_namespace(parser)


def _add_namespace(parser: ArgumentParser) -> None:
    parser.add_argument("--namespace", default="berth", help="the namespace of Berth's processes (default berth)")


def _reviews_tokens() -> bool:
    return bool(settings.BERTH.token_review_audience)


def _read_by_live_rules() -> frozenset[str]:
    return CompiledRevision(current_revision()).reads


def _verbs(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if unknown := [name for name in names if name not in VERBS]:
        message = f"{unknown[0]} isn't a verb; the verbs are: {', '.join(VERBS)}"
        raise ArgumentTypeError(message)
    return names


def _truth(text: str) -> bool:
    if text.lower() not in {"true", "false", "yes", "no"}:
        message = "write true or false"
        raise ArgumentTypeError(message)
    return text.lower() in {"true", "yes"}


def _seconds(text: str) -> float:
    try:
        seconds = float(text.removesuffix("s"))
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _LONGEST_SECONDS:
        message = f"write a number of seconds above 0 and up to {_LONGEST_SECONDS:g}"
        raise ArgumentTypeError(message)
    return seconds


_LONGEST_SECONDS = 600.0


def _managed(text: str) -> Managed:
    name, _, ignored = text.partition(":")
    if ignored not in {"", "ignored"}:
        message = "write NAME or NAME:ignored"
        raise ArgumentTypeError(message)
    return Managed(name, ignored_by_scheduler=bool(ignored))


def _answers(given: dict[str, Any]) -> Answers:
    """Return the answers for a configuration; where no address is given, it is this machine's, with the port in the settings."""
    port = settings.BERTH.extender_bind.rpartition(":")[2]
    return msgspec.convert({"url_prefix": f"http://127.0.0.1:{port}"} | given, Answers)


# The defaults are shown in brackets; None for the one that depends on the settings.
_QUESTIONS = (
    ("url_prefix", "Where does kube-scheduler reach Berth's extender?", None, str),
    (
        "verbs",
        "Which verbs, separated by commas? bind checks counts again, preempt protects Pods",
        "filter,prioritize",
        _verbs,
    ),
    ("weight", "The extender's weight? 141 and more outvote all default scores", "150", int),
    ("http_timeout_seconds", "After how many seconds does a call time out?", "3", _seconds),
    ("ignorable", "Place Pods without the rules while Berth is down?", "no", _truth),
    ("ca_file", "CA that signed Berth's certificate, on kube-scheduler's machine; empty for plain HTTP", "", str),
    ("cert_file", "Client certificate", "", str),
    ("key_file", "Key of the client certificate", "", str),
    ("server_name", "Name in Berth's certificate; empty if it is the host", "", str),
    ("scheduler_name", "schedulerName of the Pods", _DEFAULTS.scheduler_name, str),
    ("kubeconfig", "kube-scheduler's kubeconfig; empty inside a Pod", "", str),
)


# Words


def _finding_lines(findings: list[Finding], source: str) -> Iterator[str]:
    for finding in findings:
        place = f"{source}:{finding.line}" if finding.line else source
        yield f"{MARKS[finding.severity]} {finding.severity} {finding.id}  {place}  {finding.place}".rstrip()
        yield f"    {finding.happens}{' ' if finding.detail else ''}{finding.detail}"
        yield f"    Do: {finding.remedy}"


def _checkup_text(found: Checkup) -> str:
    width = max(len(part.name) for part in found.parts)
    lines = []
    for part in found.parts:
        lines.append(f"{MARKS[part.state]} {part.name:<{width}}  {part.says}")
        if part.state != "ok" and part.remedy:
            lines.append(f"  {'':<{width}}  Do: {part.remedy}")
    findings = [finding for finding in found.findings if finding.severity != "note"]
    return "\n".join([*lines, *_finding_lines(findings, "kube-scheduler's file")])


def _report_lines(report: Report) -> Iterator[str]:
    yield f"{MARKS['ok' if report.ok else 'error']} {report.summary}"
    if report.pod:
        yield f"  canary {report.namespace}/{report.pod}, schedulerName {report.scheduler_name}, {report.seconds:.1f} s"
    for verb in report.verbs:
        yield f"  {_VERB_MARKS[verb.state]} {verb.verb:<10}  {verb.state}: {verb.says}{_when(verb)}"
    for advice in report.advice:
        yield f"  {advice.happens}"
        yield f"    Do: {advice.remedy}"


def _when(verb: VerbReport) -> str:
    after = "" if verb.after_seconds is None else f", answered {verb.after_seconds:.2f} s after the Pod was created"
    if not verb.callers:
        return after
    call = verb.callers[0]
    address = f" ({call.address})" if call.address and call.address != call.identity else ""
    return f"{after}; last called {call.ago} by {call.identity}{address}"
