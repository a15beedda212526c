"""Form fields that show documents as people write them: YAML, lists of names, label selectors."""

import re
from typing import Any

import msgspec
from django import forms
from django.contrib.admin.widgets import AutocompleteSelect
from django.core.exceptions import ValidationError
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextareaWidget, UnfoldAdminTextInputWidget

from policies import checking, manifests
from policies.engine import ruleset as engine
from policies.engine.errors import RuleSetError
from policies.sentences import selector_text

_SELECTED = mark_safe(" selected")
# The most digits of a key; a database's numbers have this many, or one more.
_DIGITS = 9
_MOST_NAMES = 1_000
_REQUIREMENT = re.compile(
    r"""\s*(?:
        !\s*(?P<absent>[^\s=!,()]+)
      | (?P<key>[^\s=!,()]+)\s+(?P<word>in|notin)\s*\((?P<values>[^()]*)\)
      | (?P<left>[^\s=!,()]+)\s*(?P<sign>==|=|!=)\s*(?P<right>[^\s=!,()]*)
      | (?P<present>[^\s=!,()]+)
    )\s*(?:,|\Z)""",
    re.VERBOSE,
)


class LinesField(forms.CharField):
    """A text of several lines, with one character for each line break: browsers count one for the length, but send two."""

    def to_python(self, value: Any) -> str | None:
        """Return the text."""
        return super().to_python(value.replace("\r\n", "\n") if isinstance(value, str) else value)


class WholeField(LinesField):
    """A text of a document, which stays as it is when something else is edited: outer spaces and a last line break included."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(strip=False, **kwargs)


class YAMLField(forms.CharField):
    """A member of a document as YAML (or JSON), of the type of its empty value."""

    def __init__(self, *, empty: Any, rows: int = 3, **kwargs: Any) -> None:
        self.empty = empty
        kwargs.setdefault("widget", UnfoldAdminTextareaWidget(attrs={"rows": rows, "class": "berth-code"}))
        super().__init__(required=False, strip=False, **kwargs)

    def prepare_value(self, value: Any) -> Any:
        """Return the text to edit."""
        if isinstance(value, str):
            return value
        return manifests.to_yaml(value) if value else ""

    def to_python(self, value: Any) -> Any:
        """Return the value in the text.

        Raises:
            ValidationError: it isn't YAML, or has another type.
        """
        if not value or not value.strip():
            return type(self.empty)()
        try:
            documents = checking.read_documents(value, "line")
        except RuleSetError as error:
            raise ValidationError(str(error)) from error
        document = documents[0].document if len(documents) == 1 else None
        if not isinstance(document, type(self.empty)):
            form = "a list (- …)" if isinstance(self.empty, list) else "an object (key: value)"
            message = f"must be one YAML or JSON document: {form}"
            raise ValidationError(message)
        return document

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Compare values rather than text."""
        try:
            return bool((initial or self.empty) != self.to_python(data))
        except ValidationError:
            return True


class ChosenByName(AutocompleteSelect):
    """Django's widget, without values that can't be a key: Django would query them to show a refused form again."""

    def format_value(self, value: Any) -> list[str]:
        """Return the keys."""
        return [key for key in super().format_value(value) if key.isdecimal() and len(key) <= _DIGITS]


class QuickSelect(UnfoldAdminSelectWidget):  # type: ignore[misc]  # Unfold has no types
    """Unfold's widget, for forms with hundreds of rows: Django renders two templates for each option.

    Measured with 300 rules, CPU of the whole form: 6.1 s with Django's widget, 4.6 s with this one.
    """

    def optgroups(self, name: str, value: list[str], attrs: dict[str, Any] | None = None) -> list[Any]:
        """Leave the options to `render`."""
        return []

    def render(self, name: str, value: Any, attrs: dict[str, Any] | None = None, renderer: Any = None) -> SafeString:
        """Return the element with its options."""
        chosen = self.format_value(value)
        options = format_html_join(
            "",
            '<option value="{}"{}>{}</option>',
            ((key, _SELECTED if str(key) in chosen else "", text) for key, text in self.choices),
        )
        head, end, tail = super().render(name, value, attrs, renderer).partition("</select>")
        return format_html("{}{}{}{}", *map(mark_safe, (head, options, end, tail)))


class NamesField(forms.CharField):
    """A list of names, separated by commas or line breaks."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("widget", UnfoldAdminTextInputWidget())
        super().__init__(required=False, **kwargs)

    def prepare_value(self, value: Any) -> Any:
        """Return the text to edit."""
        return ", ".join(value) if isinstance(value, list) else value

    def to_python(self, value: Any) -> Any:
        """Return the names.

        Raises:
            ValidationError: there are too many; checking each of 100,000 takes seconds.
        """
        names = [name for name in re.split(r"[\s,]+", value or "") if name]
        if len(names) > _MOST_NAMES:
            message = f"{len(names):,} names; at most {_MOST_NAMES:,} are accepted"
            raise ValidationError(message)
        return names


class SelectorField(forms.CharField):
    """A label selector as kubectl writes it: `team=web,tier in (a,b),!gpu`."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("widget", UnfoldAdminTextInputWidget())
        super().__init__(required=False, **kwargs)

    def prepare_value(self, value: Any) -> Any:
        """Return the text to edit."""
        return selector_text(msgspec.convert(value, engine.LabelMatch)) if isinstance(value, dict) else value

    def to_python(self, value: Any) -> Any:
        """Return the selector in a document's form.

        Raises:
            ValidationError: it isn't a selector.
        """
        return parse_selector(value or "")


def parse_selector(text: str) -> dict[str, Any]:
    """Read a label selector.

    Raises:
        ValidationError: it isn't a selector.
    """
    labels: dict[str, str] = {}
    expressions: list[dict[str, Any]] = []
    position = 0
    text = text.strip()
    while position < len(text):
        found = _REQUIREMENT.match(text, position)
        if found is None:
            message = f"“{text[position:]}” isn't a label selector; write it like team=web, tier in (a, b), !gpu"
            raise ValidationError(message)
        _read_requirement(found.groupdict(), labels, expressions)
        position = found.end()
    selector: dict[str, Any] = {"matchLabels": labels} if labels else {}
    if expressions:
        selector["matchExpressions"] = expressions
    return selector


def _read_requirement(part: dict[str, str | None], labels: dict[str, str], expressions: list[dict[str, Any]]) -> None:
    if part["absent"]:
        expressions.append({"key": part["absent"], "operator": "DoesNotExist"})
    elif part["present"]:
        expressions.append({"key": part["present"], "operator": "Exists"})
    elif part["key"]:
        # As kubectl: `a in (,b)` is a label that is empty or b, which a document may ask for, too.
        values = [value.strip() for value in (part["values"] or "").split(",")]
        expressions.append(
            {"key": part["key"], "operator": "In" if part["word"] == "in" else "NotIn", "values": values}
        )
    elif part["sign"] == "!=":
        expressions.append({"key": part["left"], "operator": "NotIn", "values": [part["right"]]})
    elif part["left"] in labels and labels[part["left"]] != part["right"]:
        message = f"label {part['left']} can't have two values at once; write {part['left']} in (a, b)"
        raise ValidationError(message)
    else:
        labels[str(part["left"])] = str(part["right"])
