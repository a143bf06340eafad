"""The command ``embedkit``: outside of the package, so that a Ctrl-C while that is imported is one line as well."""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """Run the command line; see ``embedkit.surfaces.cli``. 130 if it was interrupted."""
    try:
        from embedkit.surfaces.cli import main as run

        return run()
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the end is near: a second one could only make a traceback of it
        sys.stderr.write("embedkit: interrupted\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
