"""Measures text analysis: one thread, batches of 1,000 texts, one JSON line per case.

    python benchmarks/bench_text.py [--texts N] [--seed N]

The bars of the ASCII case hold for texts of about 68 bytes and 10 terms, which is what short
posts have; the other cases keep the number of terms and change the script.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from sirocco.model.objects import pack_bytes
from sirocco.model.text import TextAnalyser, invalid_utf8_rows, tokens_of

BATCH = 1_000
PASSES = 5

LATIN = "abcdefghijklmnopqrstuvwxyz"
CASES = {
    "ascii": LATIN,
    "latin": LATIN * 2 + "äöüéèñçåøß",
    "cyrillic": "абвгдежзийклмнопрстуфхцчшщъыьэюя",
    "devanagari": "कखगघचछजझटठडढतथदधनपफबभमयरलवशषसहािीुूेैोौ्ं",
    "cjk": "日本語中文東京大阪上海北京山川田力",
    "hangul": "가나다라마바사아자차카타파하한글",
    # Accents of their own, some after letters with which they compose.
    "decomposed": LATIN + "\u0301\u0308",
}


def make_texts(alphabet: str, count: int, rng: random.Random) -> list[str]:
    """Returns texts of 10 terms, 5.8 letters each on average, some capitals and commas."""
    vocabulary = [
        "".join(rng.choices(alphabet, k=max(1, min(16, round(rng.gauss(5.8, 2.5))))))
        for _ in range(20_000)
    ]
    texts = []
    for _ in range(count):
        words = rng.choices(vocabulary, k=10)
        words[0] = words[0].capitalize()
        words[4] += ","
        texts.append(" ".join(words))
    return texts


def run_all(function: Callable[..., object], calls: Iterable[tuple[Any, ...]]) -> None:
    """Calls a function with each tuple of arguments."""
    for arguments in calls:
        function(*arguments)


def best_rate(count: int, run: Callable[[], object]) -> float:
    """Returns texts per second of the fastest pass."""
    seconds = []
    for _ in range(PASSES):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return count / min(seconds)


def main() -> None:
    """Runs all cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    analyser = TextAnalyser()
    for case, alphabet in CASES.items():
        texts = make_texts(alphabet, arguments.texts, random.Random(arguments.seed))
        encoded = [text.encode() for text in texts]
        batches = [pack_bytes(encoded[i : i + BATCH]) for i in range(0, len(encoded), BATCH)]
        terms = sum(int(analyser.analyse_batch(*batch).lengths.sum()) for batch in batches)
        kernel_rate = best_rate(len(texts), partial(run_all, analyser.analyse_batch, batches))
        check_rate = best_rate(len(texts), partial(run_all, invalid_utf8_rows, batches))
        sample = [(text,) for text in texts[:2_000]]
        python_rate = best_rate(len(sample), partial(run_all, tokens_of, sample))
        line = {
            "case": case,
            "texts_per_s": round(kernel_rate),
            "utf8_checks_per_s": round(check_rate),
            "reference_texts_per_s": round(python_rate),
            "bytes_mean": sum(map(len, encoded)) / len(encoded),
            "terms_mean": terms / len(encoded),
            "batch": BATCH,
        }
        print(json.dumps(line))


if __name__ == "__main__":
    main()
