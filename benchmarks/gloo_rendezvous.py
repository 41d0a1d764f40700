"""How ranks of Horovod with Gloo find each other, as `horovodrun --gloo` does it.

Its ranks can find each other through MPI as well, but then its all-reduce with Gloo ends with a
segmentation fault (Horovod 0.28.1). So mpirun starts the ranks, and they use nothing else of MPI.
"""

import os
import threading

# The first host is a network namespace of its own, in which no other program listens.
_PORT = 29400


def join(addresses):
    """Tells Horovod its rank and where to ask for the others; before `horovod.init`.

    On the first rank, begins to answer, in a thread that ends with the process.

    Args:
        addresses: List of str, of the hosts in the order of ranks, one rank on each.
    """
    rank, size = int(os.environ["OMPI_COMM_WORLD_RANK"]), len(addresses)
    if rank == 0:
        _answer(addresses)
    os.environ.update(
        HOROVOD_GLOO_RENDEZVOUS_ADDR=addresses[0],
        HOROVOD_GLOO_RENDEZVOUS_PORT=str(_PORT),
        HOROVOD_HOSTNAME=addresses[rank],
        HOROVOD_RANK=str(rank),
        HOROVOD_SIZE=str(size),
        HOROVOD_LOCAL_RANK="0",
        HOROVOD_LOCAL_SIZE="1",
        HOROVOD_CROSS_RANK=str(rank),
        HOROVOD_CROSS_SIZE=str(size),
    )


def _answer(addresses):
    from horovod.runner.common.util import hosts
    from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

    server = RendezvousHTTPServer(("", _PORT), RendezvousHandler, 0)
    slots = hosts.parse_hosts(",".join(f"{address}:1" for address in addresses))
    server.init(hosts.get_host_assignments(slots, len(addresses)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
