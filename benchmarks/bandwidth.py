"""Measures what one link of a cluster carries: one TCP stream from the first host to the second.

Run on the hosts by `measure`; as a program: `bandwidth.py serve ADDRESS` or `send ADDRESS`.
"""

import socket
import subprocess
import sys
import time

_PORT = 5201
_CHUNK = bytes(1 << 18)
_WARMUP_S = 0.3  # until TCP's window is open and the link's burst allowance is used up
_MEASURED_S = 1.0
_LIMIT_S = 30.0


class BandwidthError(RuntimeError):
    """A link's bandwidth cannot be measured; the message says why."""


def measure(cluster):
    """Returns the payload that a link carries, in bytes per second.

    Args:
        cluster: `EmulatedCluster` of at least two hosts.

    Raises:
        BandwidthError: If the links are too slow.
    """
    address = cluster.hosts[1].address
    server = subprocess.Popen(
        cluster.command(1, [sys.executable, __file__, "serve", address]),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for the benchmark
    )
    try:
        server.stdout.readline()  # it listens
        subprocess.run(
            cluster.command(0, [sys.executable, __file__, "send", address]),
            check=True,
            timeout=_LIMIT_S,
            start_new_session=True,
        )
        return float(server.stdout.readline())
    except subprocess.TimeoutExpired as error:
        raise BandwidthError(
            f"a stream of {_WARMUP_S + _MEASURED_S:g} s between two hosts took more than "
            f"{_LIMIT_S:g} s: links of {cluster.bandwidth:g} bit/s are too slow to be measured"
        ) from error
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


def _serve(address):
    with socket.create_server((address, _PORT)) as listener:
        print("listening", flush=True)
        connection, _ = listener.accept()
        with connection:
            buffer = bytearray(1 << 20)
            received = 0
            begin = time.perf_counter()
            start = None
            while count := connection.recv_into(buffer):
                now = time.perf_counter()
                if start is None and now - begin > _WARMUP_S:
                    start, received = now, 0
                    continue
                received += count
                if start is not None and now - start > _MEASURED_S:
                    break
            print(received / (now - start), flush=True)


def _send(address):
    with socket.create_connection((address, _PORT)) as connection:
        end = time.perf_counter() + _WARMUP_S + _MEASURED_S + 0.5
        try:
            while time.perf_counter() < end:
                connection.sendall(_CHUNK)
        except ConnectionError:
            pass  # the receiver has measured enough


if __name__ == "__main__":
    {"serve": _serve, "send": _send}[sys.argv[1]](sys.argv[2])
