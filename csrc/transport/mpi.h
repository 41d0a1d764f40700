// The MPI transport: negotiation and slices in host memory, on communicators of their own. In a
// build with CUDA, slices in the memory of GPUs go over NCCL beside it.
// Needs MPI initialised with MPI_THREAD_MULTIPLE, which Horovod does. Made on any thread by a
// collective call of all ranks; used by the engine thread.
#ifndef HVD_P3_TRANSPORT_MPI_H_
#define HVD_P3_TRANSPORT_MPI_H_

#include <memory>
#include <string>

#include "core/status.h"
#include "transport/transport.h"

namespace hvd_p3 {

// OK if MPI can be used from the engine thread now; otherwise says what is missing.
Status CheckMpi();

// True once MPI_Finalize was called: a process cannot initialise MPI again.
bool MpiIsFinalized();

// Starts MPI, which must not have been started, and ends it. `*library`: its name and version;
// `*threads`: the thread level that it provides. For a process that uses MPI for nothing else.
Status TryMpi(std::string* library, std::string* threads);

// Collective over all ranks of MPI_COMM_WORLD. `horovod_sleeps`: whether csrc/interposed/ is in
// force in this process; ranks must agree, since Horovod's messages depend on it.
Status MakeMpiTransport(bool horovod_sleeps, std::unique_ptr<ControlChannel>* control,
                        std::unique_ptr<Transport>* transport);

}  // namespace hvd_p3

#endif  // HVD_P3_TRANSPORT_MPI_H_
