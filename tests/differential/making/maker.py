"""What the makers of all parts of a case share."""

from random import Random
from typing import Any

from tests.differential.making.words import IMAGE_NAMES, LARGE_VALUES, MALFORMED, ODD_IMAGE_NAMES, POD_LABELS, Json


class Maker:
    """Draws by chance, from what the themes of a case allow."""

    def __init__(self, random: Random, themes: set[str]) -> None:
        self.random = random
        self.themes = themes
        self.pod_labels = POD_LABELS
        self.uid = 0
        self.ephemerals: list[tuple[str, int, str]] = []

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def some(self, choices: list[Any], most: int, least: int = 0) -> list[Any]:
        count = min(self.random.randint(least, most), len(choices))
        return self.random.sample(choices, count)

    def rarely(self, share: float = 0.2) -> bool:
        """Return whether to do what the API server would refuse, or what hardly anybody does."""
        return "rarities" in self.themes and self.chance(share)

    def image(self) -> str:
        return self.random.choice(IMAGE_NAMES if not self.chance(0.05) else ODD_IMAGE_NAMES)

    def labels(self, words: dict[str, list[str]], most: int = 2) -> Json:
        keys = self.some(list(words), most, 1)
        return {key: self.random.choice(words[key]) for key in keys}

    def label_selector(self, words: dict[str, list[str]]) -> Json | None:
        random = self.random
        if self.chance(0.05):
            return None
        selector: Json = {}
        if self.chance(0.65):
            selector["matchLabels"] = self.labels(words, most=1)
        if self.chance(0.3):
            key = random.choice([*words, "absent"])
            operator = random.choice(["In", "NotIn", "Exists", "DoesNotExist"])
            requirement: Json = {"key": key, "operator": operator}
            if operator in {"In", "NotIn"}:
                requirement["values"] = self.some(words.get(key, ["v"]), 2, 1)
                if "large" in self.themes and self.chance(0.5):
                    requirement["values"] += LARGE_VALUES
            selector["matchExpressions"] = [requirement]
            if self.rarely(0.1):
                selector["matchExpressions"] = [random.choice(MALFORMED)]
        return selector
