"""Hooks of MkDocs: reference pages made from the code, and links and pictures from the documentation into the checkout.

The documents are read in the checkout too, where a link to a file of the code leads to that file. In the site such a file is
copied beside the pages, README and its neighbours are pages, and a folder is named.
"""

import ast
import os
import re
import sys
from argparse import RawDescriptionHelpFormatter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
# Documents of the checkout that are pages of the site.
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changes.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
}
# Where files that documents link to are copied.
COPIES = "checkout"
_LINK = re.compile(r"\[(?P<text>(?:[^\[\]]|\[[^\[\]]*\])*)\]\((?P<target>[^()\s]+)\)")
_BEGINS = re.compile(r"\||[-*] |\d+\. ")
# Of these, what ends a paragraph without an empty line: a numbered list only by its 1 (CommonMark 0.31.2, list items).
_INTERRUPTS = re.compile(r"\||[-*] |1\. ")
_ROW = re.compile(r"^(?:<p>)?\|.*\|$", re.MULTILINE)
_PRE = re.compile(r"<pre.*?</pre>", re.DOTALL)
_FENCE = re.compile(r"(^```.*?^```)", re.MULTILINE | re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Name every decision on the design in the navigation."""
    records = sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs" / "adr").glob("0*.md"))
    records.insert(0, "adr/README.md")
    config.nav.append({"Decisions on the design": records})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that aren't in docs/, and copies of the files that pages link to."""
    for source, uri in PAGES.items():
        files.append(File.generated(config, uri, content=(ROOT / source).read_text(encoding="utf-8")))
    for name, make in _REFERENCE.items():
        files.append(File.generated(config, f"reference/{name}.md", content=make()))
    linked = {path for file in files.documentation_pages() for path in _linked_files(file)}
    for path in sorted(linked):
        files.append(File.generated(config, _copy(path), abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links that leave docs/ at the pages and copies that the site has in their place."""
    del config, files
    uri = page.file.src_uri
    return _outside_fences(markdown, lambda text: _LINK.sub(lambda found: _rewritten(found, uri), _apart(text)))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Refuse a page whose tables are drawn as text.

    Raises:
        PluginError: there is one.
    """
    del config, files
    if found := _ROW.search(_PRE.sub("", html)):
        message = f"{page.file.src_uri}: this row is no table: {found[0][:80]}"
        raise PluginError(message)
    return html


def _apart(markdown: str) -> str:
    """Put a line before each table and list that follows a fence or a paragraph at once: there it needs none, here it does."""
    lines = markdown.split("\n")
    made = lines[:1]
    for number, (before, line) in enumerate(pairwise(lines)):
        # The first one is what is left of a fence's last line. A list goes on behind the lines of its last item.
        follows = before.strip() and not _BEGINS.match(before) and not before.startswith((" ", "#"))
        if (not number and _BEGINS.match(line)) or (follows and _INTERRUPTS.match(line)):
            made.append("")
        made.append(line)
    return "\n".join(made)


def _outside_fences(markdown: str, change: Callable[[str], str]) -> str:
    parts = _FENCE.split(markdown)
    return "".join(part if index % 2 else change(part) for index, part in enumerate(parts))


def _place(uri: str) -> Path:
    """Return the folder of the checkout in which the document stands."""
    source = next((source for source, page in PAGES.items() if page == uri), None)
    return ROOT if source else (ROOT / "docs" / uri).parent


def _target(link: str, uri: str) -> tuple[Path, str] | None:
    """Return what a link leads to in the checkout, and its anchor; None for one that leads elsewhere, or into its own page."""
    path, _, anchor = link.partition("#")
    if not path or "://" in path or path.startswith("mailto:"):
        return None
    return Path(os.path.normpath(_place(uri) / path)).relative_to(ROOT), f"#{anchor}" if anchor else ""


def _rewritten(found: re.Match[str], uri: str) -> str:
    target = _target(found["target"], uri)
    if target is None:
        return found[0]
    path, anchor = target
    if path.as_posix() in PAGES:
        return f"[{found['text']}]({_relative(PAGES[path.as_posix()], uri)}{anchor})"
    if path.parts[:1] == ("docs",):
        return f"[{found['text']}]({_relative(path.relative_to('docs').as_posix(), uri)}{anchor})"
    if (ROOT / path).is_file():
        return f"[{found['text']}]({_relative(_copy(path.as_posix()), uri)})"
    return f"{found['text']} (`{path.as_posix()}/`)"


def _relative(target: str, uri: str) -> str:
    return os.path.relpath(target, Path(uri).parent)


def _copy(path: str) -> str:
    """Return where a file of the checkout is in the site; browsers show it as text."""
    return f"{COPIES}/{path}.txt"


def _linked_files(file: File) -> Iterator[str]:
    for found in _LINK.finditer(_FENCE.sub("", file.content_string)):
        target = _target(found["target"], file.src_uri)
        if (
            target
            and target[0].as_posix() not in PAGES
            and target[0].parts[:1] != ("docs",)
            and (ROOT / target[0]).is_file()
        ):
            yield target[0].as_posix()


def _django() -> None:
    sys.path.insert(0, str(ROOT))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
    import django

    django.setup()


def _settings() -> str:
    """Return every setting with the comment that stands above it in `controlplane.env`."""
    from controlplane import env, env_values

    tree = ast.parse(Path(env.__file__).read_text(encoding="utf-8"))
    (environment,) = (each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == "Environment")
    fields = [
        (each.target.id, each.lineno)
        for each in environment.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    ]
    lines = Path(env.__file__).read_text(encoding="utf-8").splitlines()
    parts = [
        "# Settings\n",
        "Every variable that Berth reads, as the code has it. [Operations](../operations.md#configuration) has them in one table.\n",
    ]
    for name, number in fields:
        parts.append(
            f"## BERTH_{name.upper()}\n{_comment_above(lines, number)}\n\nAccepted: {env_values.READERS[name][1]}.\n"
        )
        if name in env._SECRETS:
            parts.append(f"A secret: `BERTH_{name.upper()}_FILE` names a file that holds it.\n")
    return "\n".join(parts)


def _comment_above(lines: list[str], number: int) -> str:
    found: list[str] = []
    for line in reversed(lines[: number - 1]):
        if not line.strip().startswith("#"):
            if found or line.strip():
                break
            continue
        found.append(line.strip().removeprefix("#").strip())
    return " ".join(reversed(found))


def _commands() -> str:
    """Return what each management command says of itself."""
    _django()
    from django.core.management import get_commands, load_command_class

    ours = {name: app for name, app in get_commands().items() if app in ("controlplane", "policies", "scheduler")}
    parts = [
        "# Commands\n",
        "`python manage.py COMMAND`, as each says it with `--help`; options that all of Django's commands have are left out.\n",
    ]
    for name, app in sorted(ours.items()):
        parser = load_command_class(app, name).create_parser("manage.py", name)
        parser.formatter_class = _Plain
        parts.append(f"## {name}\n```text\n{_without_common(parser.format_help())}\n```\n")
    return "\n".join(parts)


class _Plain(RawDescriptionHelpFormatter):
    """As wide on every machine."""

    def __init__(self, prog: str, **_: Any) -> None:
        super().__init__(prog, width=110)


def _without_common(text: str) -> str:
    common = r"\n  (?:-h, --help|--version|-v|--settings|--pythonpath|--traceback|--no-color|--force-color|--skip-checks)\b.*?(?=\n  -|\n\S|\Z)"
    text = re.sub(common, "", text, flags=re.DOTALL)
    usage = r"\s*\[(?:-h|--version|-v \{0,1,2,3\}|--settings SETTINGS|--pythonpath PYTHONPATH|--traceback|--no-color|--force-color|--skip-checks)\]"
    return re.sub(r"\noptions:\s*\Z", "", re.sub(usage, "", text)).strip()


def _metrics() -> str:
    _django()
    from prometheus_client.metrics import MetricWrapperBase

    from scheduler import metrics

    rows = [each for each in vars(metrics).values() if isinstance(each, MetricWrapperBase)]
    parts = [
        "# Metrics\n",
        "Those that a process counts itself. What the database knows, and which to watch, is in [operations](../operations.md#metrics).\n",
        "| metric | kind | labels | what |",
        "|---|---|---|---|",
    ]
    for each in sorted(rows, key=lambda metric: metric._name):
        name = f"{each._name}_total" if each._type == "counter" else each._name
        parts.append(f"| `{name}` | {each._type} | {', '.join(each._labelnames)} | {each._documentation} |")
    return "\n".join(parts)


def _rest() -> str:
    _django()
    from drf_spectacular.generators import SchemaGenerator

    schema = SchemaGenerator().get_schema(public=True)
    parts = ["# REST\n", "With a token or the admin's session; the OpenAPI document is at `/api/schema/`.\n"]
    for path, verbs in sorted(schema["paths"].items()):
        for verb, operation in verbs.items():
            parts.append(f"## {verb.upper()} {path}\n{operation.get('description', '').strip()}\n")
            if named := [each["name"] for each in operation.get("parameters", [])]:
                parts.append(f"Parameters: {', '.join(f'`{name}`' for name in named)}.\n")
    return "\n".join(parts)


def _rights() -> str:
    from scheduler.doctor.rights import COMPONENTS, rights_of

    parts = [
        "# Rights in the cluster\n",
        "What each process may do, and why; `manage.py doctor rbac` prints it as a manifest.\n",
    ]
    for component in COMPONENTS:
        parts.append(f"## {component}\n\n| group | resource | verbs | for |\n|---|---|---|---|")
        parts += [
            f"| {right.group or 'core'} | {right.resource} | {', '.join(right.verbs)} | {right.reason} |"
            for right in rights_of(component)
        ]
        parts.append("")
    return "\n".join(parts)


def _built_in_rules() -> str:
    _django()
    from policies.engine.filters.registry import BUILTIN_FILTERS
    from policies.engine.scores.registry import BUILTIN_SCORES

    parts = [
        "# Built-in rules\n",
        "By their classic names. What each takes and how it differs from kube-scheduler is in [rules](../rules.md#built-in-rules).\n",
    ]
    for title, registry in (("Filters", BUILTIN_FILTERS), ("Scores", BUILTIN_SCORES)):
        parts.append(f"## {title}\n\n| name | what |\n|---|---|")
        for name, rule in sorted(registry.items()):
            said = (rule.__doc__ or "").strip().splitlines()[0]
            parts.append(f"| `{name}` | {said if name == rule.__name__ else f'the same as `{rule.__name__}`'} |")
        parts.append("")
    return "\n".join(parts)


def _licences() -> str:
    sys.path.insert(0, str(ROOT))
    from tests.architecture.licences import licence, runtime_packages

    parts = [
        "# Licences\n",
        (
            "Berth is under Apache-2.0. What it runs on, as `uv.lock` fixes it, and the licence that each package's own metadata names; "
            "[decision 2](../adr/0002-dependencies.md) says why those that are named in `pyproject.toml` are there.\n"
        ),
        "| package | licence |",
        "|---|---|",
    ]
    parts += [f"| {name} | {said} |" for name in runtime_packages() if (said := licence(name)) is not None]
    return "\n".join(parts)


_REFERENCE: dict[str, Callable[[], str]] = {
    "built-in-rules": _built_in_rules,
    "commands": _commands,
    "licences": _licences,
    "metrics": _metrics,
    "rest": _rest,
    "rights": _rights,
    "settings": _settings,
}
