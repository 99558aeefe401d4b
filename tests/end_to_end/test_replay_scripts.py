"""Texts in ten scripts, with emoji, phrases, beginnings of words and without accents: `sirocco
replay` and the oracle, for every kind and mode, also under maps that split the vocabulary."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.replayed import agree, replay, write_lines
from tests.oracle import answers

POSTS = [
    "Big fire, evacuation! Evacuate now",
    "fire drill — big red fire engine",
    "火事だ! 大きな火事が東京駅で",
    "東京駅前の火、事故ではない カーテン",
    "北京发生火灾 消防车已到 🔥",
    "ไฟไหม้ใหญ่ที่กรุงเทพ",
    "ໄຟໄໝ້ ခြံ ភ្លើង",
    "İstanbul'da büyük yangın 5½ km",
    "ΦΩΤΙΆ στην Αθήνα",
    "пожар в Москве, эвакуация",
    "हिन्दी में आग लगी है",
    "حريق كبير می\u200cخواهم",
    "불이야 서울역 화재",
    "I ❤️ Paris 🇫🇷🇩🇪 👍🏽",
    "soft\u00adhyphen cafe\u0301",
    "Zürich: fire in a café noir",
    "pożar w Łodzi, cafe noir, zurich",
    "",
]
TEXTS = [
    '"big fire"',
    "evacuat*",
    "ANY(evac* 火災 🔥)",
    "火事",
    "火",
    "火 NOT 火事",
    "東京駅 OR 北京",
    "ไฟ",
    "ภ្លើង OR ไหม้",
    "istanbul",
    'büy* ("yangın 5" OR 5½)',
    "φωτιά",
    '"в москве" NOT пож*',
    "आग OR हिन्दी",
    "میخواهم OR حري*",
    "서울* AND NOT 불이야",
    '❤ NOT "fire drill"',
    "🇫🇷",
    "softhyphen café",
    'fire NOT "big fire"',
    "カーテン",
]
# Accents do not matter to these.
FOLDED = [
    "zurich",
    "ZÜRICH NOT pozar",
    '"cafe noir"',
    "lod* OR zür*",
    'ANY("café noir" φωτια) NOT łodzi',
    "yangin buyuk",
    "حریق OR حر*",
    "火事 OR हिन्दी",
]
WORLD = {"rect": {"west": -180, "south": -90, "east": 180, "north": 90}}
HERE = {"rect": {"west": 0, "south": 0, "east": 6, "north": 6}}
POINT = {"point": {"lon": 3.0, "lat": 3.0}}
RANKED = {"radius_m": 900_000, "k": 5, "weights": {"text": 0.6, "space": 0.2, "time": 0.2}}
KEYWORDS = [["fire", "東京"], ["火事", "🔥"], ["Büyük", "ไฟไหม้"], ["火"], ["화재", "आग"]]


def stream(dice: random.Random) -> list[dict[str, Any]]:
    """Returns objects of a minute with one or two posts each."""
    return [
        {
            "id": number,
            "ts": 1_000_000 + 300 * number,
            "lon": dice.randrange(80) / 10,
            "lat": dice.randrange(80) / 10,
            "text": " ".join(dice.sample(POSTS, dice.choice([1, 1, 2]))),
            "line": f"L{number % 7}",
        }
        for number in range(200)
    ]


def questions() -> list[dict[str, Any]]:
    """Returns each text in each kind and mode."""
    found: list[dict[str, Any]] = []
    texts: list[dict[str, Any]] = [{"text": text} for text in TEXTS]
    texts += [{"text": text, "fold": True} for text in FOLDED]
    for one in texts:
        for mode in ("continuous", "snapshot"):
            step = {"step": "20s"} if mode == "continuous" else {}
            found += [
                {"kind": "range", "mode": mode, "region": HERE} | one,
                {"kind": "knn", "mode": mode, "k": 3} | POINT | one,
                {"kind": "terms", "mode": mode, "k": 5, "region": WORLD} | step | one,
            ]
        found.append({"kind": "range", "mode": "continuous", "region": HERE, "track": "line"} | one)
    for words in KEYWORDS:
        for mode in ("continuous", "snapshot"):
            step = {"step": "20s"} if mode == "continuous" else {}
            ranked = {"kind": "ranked", "mode": mode, "keywords": words} | RANKED | POINT | step
            found.append(ranked)
    found.append({"kind": "terms", "mode": "snapshot", "k": 30, "region": WORLD})
    found.append({"kind": "terms", "mode": "continuous", "k": 30, "region": WORLD, "step": "10s"})
    return [{"id": f"q{number}"} | each for number, each in enumerate(found)]


@pytest.mark.parametrize("scheme", ["qt-tree", "kdt-tree", "text-frequency"])
def test_all_scripts_are_answered_as_the_oracle_does(tmp_path: Path, scheme: str) -> None:
    # init
    objects, queries = stream(random.Random(7)), questions()
    write_lines(tmp_path / "objects", objects)
    write_lines(tmp_path / "queries", queries)

    # test
    done = replay(tmp_path, 2, "--scheme", scheme, "--sample", tmp_path / "objects")

    # check
    agree(done, objects, queries, seed=7)
    silent = [id_ for id_, each in answers(objects, queries).items() if not each.lines()]
    assert len(silent) < 0.2 * len(queries)
