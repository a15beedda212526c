"""Whole numbers as Go divides and normalises them.

Source: kube-scheduler v1.36.3 framework/plugins/helper/normalize_score.go; Go 1.26 math/log.go, math/floor.go.
"""

from math import frexp, sqrt

import numpy as np
import numpy.typing as npt

from policies.engine.objects.table import Numbers

MAX_SCORE = 100


# Below this a whole number is exact as a 64-bit float, and the truncated quotient of two is the same in both.
_EXACT = 2**53


def divide(dividend: Numbers, divisor: Numbers | np.int64) -> Numbers:
    """Divide rounding towards zero, as Go does; numpy rounds down. Where the divisor is 0 the result is the dividend."""
    # The highest bit that is set in any of them bounds their size; a negative number shows in the sign.
    together = int(np.bitwise_or.reduce(dividend, axis=None))
    if together >= 0 and not isinstance(divisor, np.ndarray) and divisor > 0:
        return np.asarray(dividend // divisor)  # rounds the same way, and numpy has a fast loop for a single divisor
    safe = divisor if np.count_nonzero(divisor) == divisor.size else divisor + (divisor == 0)
    if together < 0:
        together = max(int(dividend.max()), ~int(dividend.min()))
    if together < _EXACT - 1:
        return np.asarray((dividend / safe).astype(np.int64))  # several times as fast
    quotient = dividend // safe
    if np.any((dividend < 0) | (safe < 0)):
        quotient = quotient + ((dividend % safe != 0) & ((dividend < 0) != (safe < 0)))
    return np.asarray(quotient)


def normalize(numbers: Numbers, *, reverse: bool = False) -> Numbers:
    """Map 0..highest to 0..100, reversed to 100..0: 100 x number / highest. All are 0, or 100, when the highest is 0."""
    highest = int(numbers.max(initial=0))
    if highest <= 0:
        return np.full(len(numbers), MAX_SCORE, dtype=np.int64) if reverse else numbers
    mapped = divide(MAX_SCORE * numbers, np.int64(highest))
    return np.asarray(MAX_SCORE - mapped) if reverse else mapped


def round_half_away(numbers: npt.NDArray[np.float64]) -> Numbers:
    """Round to whole numbers, as Go's math.Round does."""
    whole = np.trunc(numbers)
    if numbers.min(initial=0) >= 0:
        whole += numbers - whole >= 0.5  # noqa: PLR2004 - a half
        return np.asarray(whole.astype(np.int64))
    return np.asarray((whole + np.sign(numbers) * (np.abs(numbers - whole) >= 0.5)).astype(np.int64))  # noqa: PLR2004


_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_L1, _L2, _L3, _L4, _L5, _L6, _L7 = (
    6.666666666666735130e-01,
    3.999999999940941908e-01,
    2.857142874366239149e-01,
    2.222219843214978396e-01,
    1.818357216161805012e-01,
    1.531383769920937332e-01,
    1.479819860511658591e-01,
)


def log(number: int) -> float:
    """Return the natural logarithm with exactly Go's bits: C's sometimes differs in the last one."""
    fraction, exponent = frexp(number)
    if fraction < sqrt(2) / 2:
        fraction *= 2
        exponent -= 1
    f, k = fraction - 1, float(exponent)
    s = f / (2 + f)
    s2 = s * s
    s4 = s2 * s2
    t1 = s2 * (_L1 + s4 * (_L3 + s4 * (_L5 + s4 * _L7)))
    t2 = s4 * (_L2 + s4 * (_L4 + s4 * _L6))
    r = t1 + t2
    half = 0.5 * f * f
    return k * _LN2_HIGH - ((half - (s * (half + r) + k * _LN2_LOW)) - f)
