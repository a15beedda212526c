"""`python -m berth`."""

import sys

from berth.main import main

sys.exit(main())
