"""The k best objects within a radius, by text, distance and age."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.oracle.forms import Answer, Line, malformed, plain, single
from tests.oracle.geometry import Floats, distances_m
from tests.oracle.ranking import DISTANCE_DECIMALS, DISTANCE_DOUBT_M, Ranking, ranking
from tests.oracle.table import Members, ObjectId, Objects, Rows
from tests.oracle.times import duration_ms, steps_ms
from tests.oracle.words import terms_of

K1, B = 1.2, 0.75

DEFAULT_STEP = "10s"
DEFAULT_HALF_LIFE = "1d"
DEFAULT_WEIGHTS = {"text": 1 / 3, "space": 1 / 3, "time": 1 / 3}

# Bound of the floating-point errors of a score, far above those of its few operations.
_SCORE_DOUBT = 1e-13

_BEST = "objects score"


def answer(objects: Objects, query: Members) -> Answer:
    """Returns the expected results of a ranked query."""
    scorer = Scorer(objects, query)
    if query["mode"] == "snapshot":
        now_ms = objects.now_ms if len(objects) else 0
        return Best(query["id"], scorer.ranking(now_ms, *objects.in_window(query)))
    assert objects.has_arrivals, "steps in wall time cannot be computed afterwards"
    window_ms = duration_ms(query["window"]) if "window" in query else None
    steps = []
    if len(objects):
        for at_ms in steps_ms(query, objects.start_ms, objects.now_ms, DEFAULT_STEP):
            # As a search at that time, whose window is closed.
            after_ms = None if window_ms is None else at_ms - window_ms - 1
            steps.append((at_ms, scorer.ranking(at_ms, *objects.arrived(after_ms, at_ms))))
    return BestSteps(query["id"], steps)


class Scorer:
    """Scores the objects that hold a keyword within the radius, at any time.

    `where` filters the candidates; N, n and the mean length are over all objects of the window
    within the radius.
    """

    def __init__(self, objects: Objects, query: Members) -> None:
        self._objects, self._k = objects, query["k"]
        self._radius_m = round(query["radius_m"], DISTANCE_DECIMALS)
        weights = query.get("weights", DEFAULT_WEIGHTS)
        self._weights = tuple(weights[name] for name in ("text", "space", "time"))
        assert objects.has_arrivals or self._weights[2] == 0, "ages in wall time are not known"
        self._half_life_ms = duration_ms(query.get("half_life", DEFAULT_HALF_LIFE))
        point = query["point"]
        self._raw_m = distances_m(point["lon"], point["lat"], objects.lon, objects.lat)
        near = np.round(self._raw_m, DISTANCE_DECIMALS) <= self._radius_m
        self._near = np.flatnonzero(near)
        self._lengths = np.concatenate([[0], np.cumsum(objects.lengths[self._near])])
        keywords = sorted({term for word in query["keywords"] for term in terms_of(word)})
        self._take_keywords(query, keywords, near)

    def _take_keywords(self, query: Members, keywords: list[str], near: Rows) -> None:
        """Creates the table of candidates by keywords: how often each holds each."""
        found = [self._objects.holders(keyword) for keyword in keywords]
        self._holders = [rows[near[rows]] for rows, _ in found]
        rows = np.unique(np.concatenate(self._holders))
        self._rows = self._objects.where(query, rows)
        self._frequencies = np.zeros((len(keywords), len(self._rows)))
        for number, (holders, counts) in enumerate(found):
            kept = np.isin(holders, self._rows)
            places = np.searchsorted(self._rows, holders[kept])
            self._frequencies[number, places] = counts[kept]

    def ranking(self, now_ms: int, first: int, last: int) -> Ranking:
        """Returns the candidates among the rows first ≤ row < last, the best at `now_ms` first."""
        a, b = np.searchsorted(self._rows, [first, last])
        rows = self._rows[a:b]
        alpha, beta, gamma = self._weights
        text = self._text(first, last, a, b)
        age_ms = now_ms - self._objects.arrivals[rows]
        others = alpha * text + gamma * np.exp2(-age_ms / self._half_life_ms)
        nearest, farthest = (
            self._space(rows, sign * DISTANCE_DOUBT_M) * beta + others for sign in (-1, 1)
        )
        figures = (
            self._space(rows, 0.0) * beta + others,
            farthest - _SCORE_DOUBT,
            nearest + _SCORE_DOUBT,
        )
        return ranking(self._objects, self._k, rows, figures, is_score=True)

    def _space(self, rows: Rows, doubt_m: float) -> Floats:
        """Returns 1 - d / radius; distances are rounded first."""
        distances = np.round(self._raw_m[rows] + doubt_m, DISTANCE_DECIMALS)
        return np.asarray(1 - distances / self._radius_m)

    def _text(self, first: int, last: int, a: int, b: int) -> Floats:
        """Returns BM25 of the candidates a ≤ place < b over the greatest of them."""
        if a == b:
            return np.zeros(0)
        begin, end = np.searchsorted(self._near, [first, last])
        total = int(end - begin)
        mean_length = (self._lengths[end] - self._lengths[begin]) / total
        length = self._objects.lengths[self._rows[a:b]]
        score = np.zeros(b - a)
        for holders, frequency in zip(self._holders, self._frequencies[:, a:b], strict=True):
            n = int(np.diff(np.searchsorted(holders, [first, last]))[0])
            idf = np.log(1 + (total - n + 0.5) / (n + 0.5))
            norm = K1 * (1 - B + B * length / mean_length)
            score += idf * frequency * (K1 + 1) / (frequency + norm)
        return np.asarray(score / score.max())


@dataclass(frozen=True, slots=True)
class Best:
    """Snapshot: one list."""

    query: str
    ranking: Ranking

    def lines(self) -> list[dict[str, Any]]:
        """Returns it as lines."""
        return [_line(self.query, self.ranking)]

    def differences(self, lines: Sequence[Line]) -> list[str]:
        """Returns the errors in lines."""
        difference = single(lines, _BEST) or _wrong_list(lines[0], self.ranking)
        return [difference] if difference else []


@dataclass(frozen=True, slots=True)
class BestSteps:
    """Continuous: a line when the list of ids differs from the one at the step before.

    Before the first step the list is empty.
    """

    query: str
    steps: list[tuple[int, Ranking]]

    def lines(self) -> list[dict[str, Any]]:
        """Returns the changes as lines."""
        lines = []
        before: list[ObjectId] = []
        for at_ms, step in self.steps:
            ids, _ = step.listed()
            if ids != before:
                lines.append(_line(self.query, step) | {"at": at_ms})
            before = ids
        return lines

    def differences(self, lines: Sequence[Line]) -> list[str]:
        """Returns the errors in lines; a list holds until the next line."""
        if faults := [bad for line in lines if (bad := malformed(line, f"{_BEST} at"))]:
            return faults
        times = [plain(line["at"]) for line in lines]
        known = [at_ms for at_ms, _ in self.steps]
        if times != [at_ms for at_ms in known if at_ms in set(times)]:
            strange = [at_ms for at_ms in times if at_ms not in known]
            return [f"lines at {strange[:3]}, which are no steps, or twice, or not in order"]
        line_at = dict(zip(times, lines, strict=True))
        before: list[ObjectId] = []
        for at_ms, step in self.steps:
            line = line_at.get(at_ms)
            if line is None:
                wrong = step.difference(before, None)
            else:
                unchanged = "repeats the list" if line["objects"] == before else None
                wrong = unchanged or _wrong_list(line, step)
                before = line["objects"]
            if wrong:
                return [f"at {at_ms}, {'no' if line is None else 'a'} line: {wrong}"]
        return []


def _line(query: str, one: Ranking) -> dict[str, Any]:
    ids, scores = one.listed()
    return {"query": query, "objects": ids, "score": scores}


def _wrong_list(line: Line, wanted: Ranking) -> str | None:
    ids, scores = line["objects"], line["score"]
    if len(ids) != len(scores):
        return f"{len(ids)} objects and {len(scores)} scores"
    return wanted.difference(ids, scores)
