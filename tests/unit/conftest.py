"""Settings of property tests."""

from __future__ import annotations

from hypothesis import settings

# The first example pays for tables and compiled code, and the machine is shared: time says
# nothing about correctness. The blob in a failure repeats it with `@reproduce_failure`.
settings.register_profile("sirocco", deadline=None, print_blob=True)
settings.load_profile("sirocco")
