"""Comparisons of whole documents as HTML: folded, each line with its sign, differing words marked."""

from collections.abc import Iterable

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from policies.differences import Line, Piece, unified, yaml_of
from policies.engine import ruleset as engine
from policies.wording import counted

_SIGNS = {"same": " ", "added": "+", "removed": "-", "gap": " "}
_TAGS = {"added": "ins", "removed": "del"}


def whole(before: engine.Document | None, after: engine.Document | None) -> SafeString:
    """Return both documents of a thing, compared, folded below a summary line; empty where nothing differs."""
    lines = unified(yaml_of(before), yaml_of(after))
    if not lines:
        return SafeString("")
    numbers = {kind: sum(line.kind == kind for line in lines) for kind in _TAGS}
    return format_html(
        '<details class="berth-details berth-diff"><summary>Full YAML diff: {}</summary>{}</details>',
        f"{counted(numbers['added'], 'line')} added, {numbers['removed']} removed",
        shown_lines(lines),
    )


def shown_lines(lines: Iterable[Line]) -> SafeString:
    """Return lines as HTML, each with its sign in front."""
    return format_html(
        '<pre class="berth-code berth-lines" tabindex="0">{}</pre>',
        format_html_join("\n", "{}", ((_shown(line),) for line in lines)),
    )


def _shown(line: Line) -> SafeString:
    text = format_html_join("", "{}", ((_piece(piece),) for piece in line.pieces))
    tag = _TAGS.get(line.kind)
    if tag is None:
        return format_html('<span class="berth-{}">{} {}</span>', line.kind, _SIGNS[line.kind], text)
    return format_html("<{0}>{1} {2}</{0}>", SafeString(tag), _SIGNS[line.kind], text)


def _piece(piece: Piece) -> SafeString | str:
    return format_html("<mark>{}</mark>", piece.text) if piece.differs else piece.text
