"""Makes `python -m hvd_p3_tools` the command `hvd-p3`."""

import sys

from hvd_p3_tools.command_line import main

if __name__ == "__main__":
    sys.exit(main())
