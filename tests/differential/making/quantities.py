"""Texts of quantities."""

import re
from random import Random

# The first digits of an exponent, and those beyond.
_BIG_EXPONENT = re.compile(r"([eE][+-]?\d{4})\d+")

# Without exponents beyond 32 bits: "1e2147483648" keeps Kubernetes' own parser busy for ever.
ODD_QUANTITIES = [
    *(
        "",
        "-",
        "+",
        ".",
        "-.",
        "m",
        "Ki",
        "E",
        "e",
        "1e",
        "1E",
        "1e+",
        "1E-",
        "1e1.5",
        "1ee1",
        "1Kii",
        "1KI",
        "1mi",
        "1k1",
    ),
    *(
        "0e99",
        "0E",
        "0Ei",
        "00",
        "-0",
        "+.0",
        "1..2",
        "1_0",
    ),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "7.9999999999999999999Ei", "8Ei", "9.3E"),
    *("0.0000000001", "0.1n", "-0.1n", "999999999999999999.9", "1e-30", "1e30", "١", "0x10", "1Zi", "Infinity", "NaN"),
]


def generate_quantity(random: Random) -> str:
    """Make a text that is, nearly is, or isn't a quantity."""
    if random.random() < 0.02:
        return random.choice(ODD_QUANTITIES)
    sign = random.choice(["", "", "", "", "-", "+"])
    digits = "".join(random.choices("0123456789", k=random.choice([1, 1, 2, 3, 4, 6, 10, 16, 20])))
    decimals = "".join(random.choices("0123456789", k=random.choice([0, 0, 1, 2, 3, 9, 12])))
    point = "." if decimals or random.random() < 0.05 else ""
    whole = "" if point and random.random() < 0.05 else digits
    suffixes = ["n", "u", "m", "", "", "", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
    suffix = random.choice(suffixes)
    if random.random() < 0.25:
        suffix = (
            random.choice("eE") + random.choice(["", "+", "-"]) + str(random.randint(0, random.choice([3, 12, 20])))
        )
    text = f"{sign}{whole}{point}{decimals}{suffix}"
    if random.random() < 0.1 and text:
        position = random.randrange(len(text))
        text = text[:position] + random.choice(["", " ", "K", "i", "e", ".", "x", "-", "٣", "m"]) + text[position + 1 :]
    # Kubernetes' own reader multiplies an exponent out: with eight digits of one it takes minutes. Ours refuses or
    # rounds such a text without doing so.
    return _BIG_EXPONENT.sub(r"\1", text)
