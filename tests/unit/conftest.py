"""Settings of property tests."""

from __future__ import annotations

from hypothesis import settings

# The first example includes tables and compilation, and the machine is shared: its time proves
# nothing. `@reproduce_failure` with the blob in a failure repeats it.
settings.register_profile("sirocco", deadline=None, print_blob=True)
settings.load_profile("sirocco")
