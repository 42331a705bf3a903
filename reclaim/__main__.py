"""`python -m reclaim` is the `reclaim` command."""

import sys

from reclaim.cli import main

sys.exit(main())
