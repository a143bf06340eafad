"""``python -m embedkit``: the command line."""

import sys

from embedkit.surfaces.cli import main

if __name__ == "__main__":
    sys.exit(main())
