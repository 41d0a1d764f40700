"""The planner for people who have a model at hand: profiles measured on this device.

```python
from hvd_p3 import planner

profile = planner.profile(model, batch=32)
planner.write(profile, "profile.json")
```

Then `hvd-p3 simulate profile.json` and `hvd-p3 plan profile.json`. Needs the packages of the extra
`tools`: `pip install matplotlib pint rich scipy`.
"""

from hvd_p3.planner.all_reduce import measure_all_reduce
from hvd_p3.planner.measuring import profile
from hvd_p3_tools.planner.builtin import load
from hvd_p3_tools.planner.device import Device
from hvd_p3_tools.planner.errors import PlannerError
from hvd_p3_tools.planner.network import Network
from hvd_p3_tools.planner.profile import Profile
from hvd_p3_tools.planner.profile_file import read, write
from hvd_p3_tools.planner.simulation.cluster import Cluster, Settings
from hvd_p3_tools.planner.simulation.simulator import simulate

__all__ = [
    "Cluster",
    "Device",
    "Network",
    "PlannerError",
    "Profile",
    "Settings",
    "load",
    "measure_all_reduce",
    "profile",
    "read",
    "simulate",
    "write",
]
