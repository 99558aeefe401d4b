"""What the Spark jobs have in common: inputs, passes over objects and queries, outputs.

The jobs import this before anything else: whoever has no Spark is told here what to do.
"""

import sys
from importlib.util import find_spec

if find_spec("pyspark") is None:
    sys.exit(
        f"pyspark is missing for {sys.executable}; in a clone, after `make setup`: .venv/bin/pip "
        "install -c constraints.txt -e '.[spark]', and run the job by .venv/bin/python"
    )
