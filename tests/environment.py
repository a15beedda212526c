"""A pytest plugin, loaded before Django: it gives tests a state folder of their own and none of the caller's settings.

It is named in pyproject's addopts. The database is still the one that BERTH_DATABASE_URL names, for runs on PostgreSQL.
"""

import os
import tempfile

from hypothesis import HealthCheck, settings

_KEPT = {"BERTH_DATABASE_URL", "BERTH_CACHE_DIR", "BERTH_GO", "BERTH_KUBE_ASSETS"}

for _name in [name for name in os.environ if name.startswith("BERTH_") and name not in _KEPT]:
    del os.environ[_name]
os.environ["BERTH_STATE_DIR"] = tempfile.mkdtemp(prefix="berth-tests-")

# The same examples in every run, so that CI fails because of a change and not by chance; `make long` searches for new ones.
# The time of an example depends on the machine's load rather than on the code.
_ANY_PACE = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("steady", derandomize=True, **_ANY_PACE)
settings.register_profile("search", max_examples=2_000, print_blob=True, **_ANY_PACE)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))
