"""Shared by all Spark jobs: inputs, passes over objects and queries, outputs.

The jobs import this first: without Spark, it reports here how to install it.
"""

import sys
from importlib.util import find_spec

if find_spec("pyspark") is None:
    sys.exit(
        f"pyspark is missing for {sys.executable}; in a clone, after `make setup`: .venv/bin/pip "
        "install -c constraints.txt -e '.[spark]', and run the job by .venv/bin/python"
    )
