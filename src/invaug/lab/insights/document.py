"""The answer as a JSON document, for machines and for the page."""

from dataclasses import asdict
from typing import Any

from invaug.lab.insights.families import in_words
from invaug.lab.insights.verdicts import Answer, Finding, as_code, as_toml
from invaug.lab.insights.words import explain, verdict_in_words
from invaug.lab.report.intervals import Estimate, estimate


def as_json(answer: Answer) -> dict[str, Any]:
    """Return everything that was found."""
    return {
        "data": answer.data,
        "model": answer.model,
        "seconds": answer.seconds,
        "unchanged": answer.unchanged,
        "held_out": {**asdict(answer.held_out), "near_chance": answer.held_out.is_near_chance},
        "families": [_family(found) for found in answer.ranking],
        "suggested": answer.suggested,
        "code": as_code(answer),
        "toml": as_toml(answer),
    }


def _family(found: Finding) -> dict[str, Any]:
    """Return the numbers of a family, their means and intervals, and the verdict."""
    verdict, why = found.judgement
    return {
        **{key: value for key, value in asdict(found).items() if key != "held_out"},
        "gamma": _with_interval(found.gamma),
        "gap": _with_interval(found.gap),
        "loss_gap": _with_interval(estimate(found.loss_gaps)),
        "accuracy_under": _with_interval(estimate(found.under)),
        "clean_with": _with_interval(estimate(found.clean)),
        "clean_without": _with_interval(estimate(found.held_out.accuracies)),
        "cost": _with_interval(found.cost),
        "verdict": verdict,
        "why": why,
        "verdict_in_words": verdict_in_words(found),
        "learned_range": found.learned,
        "full_range": in_words(found.ranges),
        "learned_up_to": in_words(found.learned) if found.learned else None,
        "reading": explain(found),
    }


def _with_interval(found: Estimate) -> dict[str, Any]:
    return {"mean": found.mean, "interval": found.interval}
