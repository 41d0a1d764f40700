// Adds reductions in the memory of GPUs to a transport for host memory. Built only with
// HVD_P3_WITH_CUDA. Any thread may call these functions; the transport is used by the engine
// thread.
#ifndef HVD_P3_TRANSPORT_NCCL_TRANSPORT_H_
#define HVD_P3_TRANSPORT_NCCL_TRANSPORT_H_

#include <memory>
#include <string>

#include "transport/transport.h"

namespace hvd_p3 {

// How ranks will meet on their GPUs. Made by rank 0, and the same on all ranks.
struct NcclMeeting {
  std::string id;  // as MakeNcclId makes it; empty if there is a problem
  // Why tensors in the memory of GPUs cannot be reduced, which is an error when there is one: jobs
  // without GPUs run all the same.
  std::string problem;
};

// The number of GPUs that this process sees, 0 without a driver.
int VisibleGpus();

// On rank 0. `all_have_gpus`: every rank sees at least one.
NcclMeeting MakeNcclMeeting(bool all_have_gpus);

std::unique_ptr<Transport> AddNcclTransport(std::unique_ptr<Transport> host,
                                            const NcclMeeting& meeting, int rank, int size);

}  // namespace hvd_p3

#endif  // HVD_P3_TRANSPORT_NCCL_TRANSPORT_H_
