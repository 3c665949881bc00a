"""`python -m motley` is the command `motley`."""

import sys

from motley.cli.main import main

sys.exit(main())
