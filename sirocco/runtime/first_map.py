"""The map that a new cluster begins with: built from a sample of objects, if there is one."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path

from sirocco.model.errors import InvalidArgument
from sirocco.model.objects import ObjectColumns, ObjectColumnsBuilder, parse_object
from sirocco.runtime.process.gzip_files import DAMAGES, LINE_BYTES_MAX, cut_lines, open_packed
from sirocco.runtime.settings import ClusterSettings
from sirocco.schemes.builders.scheme import scheme_named
from sirocco.schemes.map.map_bytes import to_bytes
from sirocco.schemes.workload.sample_keys import frequent_terms
from sirocco.schemes.workload.sampling import sample_of

# More do not change a map of some hundred leaves, and building takes a second for them.
SAMPLE_OBJECTS_MAX = 100_000

# A hundred thousand lines as long as lines may be are a hundred gigabytes.
SAMPLE_BYTES_MAX = 256 << 20


def first_map(settings: ClusterSettings, sample: str) -> bytes:
    """Builds the first map; an empty path means no sample.

    Raises:
        InvalidArgument: the scheme is unknown, or leaves and slots do not fit it.
        OSError: the sample cannot be read.
    """
    scheme = scheme_named(settings.scheme)
    objects = read_sample(Path(sample)) if sample else ObjectColumnsBuilder().build()
    # Without queries the scheme assumes some; the time span then does not matter.
    taken = sample_of(objects, (), len(objects), 1)
    built = scheme.build(taken, settings.leaves, settings.slots)
    if not settings.store and not len(built.frequent_terms):
        # The rarest keyword of a query lets the fewest objects through to it.
        terms, frequencies = frequent_terms(taken)
        built = replace(built, frequent_terms=terms, frequencies=frequencies)
    return to_bytes(built)


def read_sample(
    path: Path, objects_max: int = SAMPLE_OBJECTS_MAX, bytes_max: int = SAMPLE_BYTES_MAX
) -> ObjectColumns:
    """Reads the first objects of a JSON-lines file, plain or gzip.

    Skips lines that are not objects, and data that cannot be unpacked.
    """
    builder = ObjectColumnsBuilder()
    room = bytes_max
    with open_packed(path) as source, suppress(*DAMAGES):
        for line in islice(cut_lines(source), objects_max):
            room -= len(line)
            if room < 0:
                break
            if len(line) > LINE_BYTES_MAX:
                continue
            with suppress(InvalidArgument):
                builder.add(parse_object(line))
    return builder.build()
