"""The command `hvd-p3` as ranks run it: `horovodrun -np 2 hvd-p3 ARGUMENTS`."""

import sys

from hvd_p3_tools.command_line import main

sys.exit(main(sys.argv[1:]))
