"""What does not fit, and what to do about it."""

_NAMES_INTERFACES = {"OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_btl_tcp_if_exclude"}


def warnings(findings):
    """Yields a sentence, without its full stop, for each thing that does not fit.

    Args:
        findings: `Findings`.
    """
    yield from findings.complaints
    yield from _of_versions(findings)
    yield from _of_mpi(findings)
    yield from _of_gpus(findings)
    others = [each for each in findings.interfaces if not each.is_loopback and each.addresses]
    if findings.interfaces and not others:
        yield (
            "no network interface but the loopback is up, so ranks of other hosts cannot be "
            "reached; look at `ip addr`"
        )
    if len(others) > 1 and not _NAMES_INTERFACES & findings.environment.keys():
        names = ", ".join(each.name for each in others)
        yield (
            f"several network interfaces are up ({names}), and Open MPI over TCP uses all through "
            "which it believes to reach other hosts; if ranks of several hosts hang at the start, "
            "name the right one: OMPI_MCA_btl_tcp_if_include="
            f"{others[0].name}"
        )


def _of_versions(findings):
    built, found = findings.build["TENSORFLOW_VERSION"], findings.versions.get("tensorflow")
    if found is not None and found != built:
        yield (
            f"TensorFlow {found} is installed, but hvd_p3 was built for {built}; rebuild Horovod "
            "and hvd_p3"
        )
    if "horovod" in findings.versions and findings.versions["horovod"] is None:
        yield (
            "Horovod is not installed for this Python, and hvd_p3 needs it; build 0.28.1 with "
            "HOROVOD_WITH_MPI=1 and HOROVOD_WITH_TENSORFLOW=1, as `make setup` does"
        )


def _of_mpi(findings):
    if findings.mpi_threads not in (None, "MPI_THREAD_MULTIPLE"):
        yield (
            f"MPI offers {findings.mpi_threads}, but the engine's thread needs "
            "MPI_THREAD_MULTIPLE; use an MPI that was built with it"
        )
    built = findings.build["MPI_LIBRARY"]
    if findings.mpi_library is not None and built and findings.mpi_library != built:
        yield (
            f"{findings.mpi_library} is loaded, but hvd_p3 was built with {built}; rebuild Horovod "
            "and hvd_p3, or change LD_LIBRARY_PATH"
        )


def _of_gpus(findings):
    if not findings.has_nccl:
        if findings.gpus:
            yield (
                "TensorFlow sees a GPU, but hvd_p3 was built without CUDA, so gradients are copied "
                "to host memory and reduced over MPI; rebuild hvd_p3 with HVD_P3_WITH_CUDA=1, see "
                "docs/gpu.md"
            )
        return
    if findings.gpus is not None and not findings.gpus:
        yield (
            "hvd_p3 was built with CUDA, but TensorFlow sees no GPU; look at `nvidia-smi` and "
            "CUDA_VISIBLE_DEVICES, and install a TensorFlow for GPUs (`pip install "
            "'tensorflow[and-cuda]'`)"
        )
    built = findings.build["NCCL_VERSION"]
    if findings.nccl is not None and _pair(findings.nccl[0]) < _pair(built):
        yield (
            f"NCCL {findings.nccl[0]} is loaded, older than {built}, with which hvd_p3 was built; "
            "put the newer one in front on LD_LIBRARY_PATH, or rebuild hvd_p3"
        )


def _pair(version):
    return tuple(map(int, version.split(".")[:2]))
