"""`python -m dualtemp` is the command line."""

import sys

from dualtemp.cli import main

if __name__ == "__main__":
    sys.exit(main())
