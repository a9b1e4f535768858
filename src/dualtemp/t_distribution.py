"""Quantiles of Student's t, without scipy."""

import math
from functools import cache


@cache
def t_quantile(p: float, df: float) -> float:
    """Return t with P(T <= t) = p, for df > 0 degrees of freedom and 0 < p < 1."""
    if p < 0.5:
        return -t_quantile(1 - p, df)
    low, high = 0.0, 1.0
    while t_probability(high, df) < p:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if t_probability(middle, df) < p else (low, middle)
    return (low + high) / 2


def t_probability(t: float, df: float) -> float:
    """Return P(T <= t) for t >= 0: 1 - I_x(df/2, 1/2) / 2 at x = df / (df + t^2)."""
    return 1 - incomplete_beta(df / 2, 0.5, df / (df + t * t)) / 2


def incomplete_beta(a: float, b: float, x: float) -> float:
    """Return the regularized incomplete beta function I_x(a, b)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # where the fraction below converges slowly
        return 1 - incomplete_beta(b, a, 1 - x)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_front) / (a * _continued_fraction(a, b, x))


def _continued_fraction(a: float, b: float, x: float) -> float:
    """Evaluate 1 + d1/(1 + d2/(1 + ...)) by Lentz's method."""
    tiny = 1e-300
    value = c = 1.0
    d = 0.0
    for i in range(1, 1000):
        m = i // 2
        if i % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1 / (1 + term * d or tiny)
        c = 1 + term / c or tiny
        value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return value
