"""A pytest plugin, loaded before Django: tests have a state folder of their own and none of the caller's settings.

Named in pyproject's addopts. The database stays the one that BERTH_DATABASE_URL names, for runs on PostgreSQL.
"""

import os
import tempfile

_KEPT = {"BERTH_DATABASE_URL", "BERTH_CACHE_DIR", "BERTH_GO", "BERTH_KUBE_ASSETS"}

for _name in [name for name in os.environ if name.startswith("BERTH_") and name not in _KEPT]:
    del os.environ[_name]
os.environ["BERTH_STATE_DIR"] = tempfile.mkdtemp(prefix="berth-tests-")
