# PYTHON_ARGCOMPLETE_OK: read by the shell completion of PyPI's argcomplete
"""`python -m request_timing`: the same program as `request-timing`."""

import sys

from request_timing.cli.saved_files import main

if __name__ == "__main__":
    sys.exit(main())
