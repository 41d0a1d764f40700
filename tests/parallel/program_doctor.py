"""What `horovodrun -np 1 hvd-p3 doctor` runs; for test_doctor.py."""

import sys

from hvd_p3_tools.command_line import main

sys.exit(main(["doctor"]))
