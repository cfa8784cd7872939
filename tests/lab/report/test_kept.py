"""What was kept, against uniform draws."""

from __future__ import annotations

import numpy as np

from invaug.lab.report.sections.kept import against_uniform


def test_operations_that_stand_out_are_named_and_chance_is_not() -> None:
    even = dict.fromkeys("abcd", (1000,))
    assert against_uniform(even).startswith("Each of 4 operations was kept about as often as uniform draws")
    said = against_uniform(even | {"a": (1500,), "d": (600,)})
    assert said.startswith(
        "Last epoch. Kept more often than uniform draws: a (+46%); less often than uniform draws: d (-"
    )
    rng = np.random.default_rng(1)
    draws = [{str(i): (int(n),) for i, n in enumerate(rng.multinomial(3000, [1 / 14] * 14))} for _ in range(200)]
    assert sum("more often" in (text := against_uniform(each)) or "less often" in text for each in draws) < 20
