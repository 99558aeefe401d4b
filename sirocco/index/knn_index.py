"""interim"""

from __future__ import annotations
from dataclasses import dataclass
import numpy as np
from sirocco.index.query_rows import QueryRows
from sirocco.kernels.geometry import distance_m


@dataclass
class KnnHits:
    object_rows: object
    query_rows: object
    distances_m: object


class KnnIndex:
    def __init__(self):
        self.q = {}
        self.end = 0
        self.dead = []

    bytes_total = 0

    def insert(self, queries, points, ks, position):
        out = []
        for i in range(len(queries)):
            convs = []
            for c in range(int(queries.conj_offsets[i]), int(queries.conj_offsets[i + 1])):
                convs.append(
                    (
                        set(
                            queries.pos_terms[
                                queries.pos_offsets[c] : queries.pos_offsets[c + 1]
                            ].tolist()
                        ),
                        set(
                            queries.neg_terms[
                                queries.neg_offsets[c] : queries.neg_offsets[c + 1]
                            ].tolist()
                        ),
                    )
                )
            self.q[self.end] = dict(
                c=convs,
                p=points[i],
                k=int(ks[i]),
                born=position,
                dead=1 << 62,
                exp=int(queries.expires_ms[i]),
                l=[],
                live=True,
            )
            out.append(self.end)
            self.end += 1
        return np.array(out, np.int32)

    def remove(self, rows, position):
        for r in rows.tolist():
            self.q[r]["dead"] = position
            self.q[r]["live"] = False

    def reclaim(self, position):
        gone = [r for r, q in self.q.items() if q["dead"] <= position]
        for r in gone:
            del self.q[r]
        return len(gone)

    def expire(self, now):
        return np.array([r for r, q in self.q.items() if q["live"] and q["exp"] <= now], np.int32)

    def seed(self, row, ids, sessions, numbers, distances):
        q = self.q[row]
        q["l"] = sorted(
            q["l"]
            + list(zip(distances.tolist(), ids.tolist(), sessions.tolist(), numbers.tolist()))
        )[: q["k"]]

    def match(self, lon, lat, toff, terms, arr, pos, ids, sessions, numbers, accepts=None):
        o, qq, d = [], [], []
        for i in range(len(lon)):
            ts = set(terms[toff[i] : toff[i + 1]].tolist())
            for r, q in self.q.items():
                if not (q["born"] <= pos[i] < q["dead"]) or arr[i] >= q["exp"]:
                    continue
                if not any(p <= ts and not (n & ts) for p, n in q["c"]):
                    continue
                dist = float(distance_m(q["p"][0], q["p"][1], lon[i], lat[i]))
                e = (dist, int(ids[i]), int(sessions[i]), int(numbers[i]))
                if len(q["l"]) >= q["k"] and e >= q["l"][-1]:
                    continue
                if accepts and not accepts(i, r):
                    continue
                q["l"] = sorted(q["l"] + [e])[: q["k"]]
                o.append(i)
                qq.append(r)
                d.append(dist)
        return KnnHits(np.array(o, np.int32), np.array(qq, np.int32), np.array(d))

    def state(self, rows):
        return {}

    def restore(self, state):
        return np.empty(0, np.int32)
