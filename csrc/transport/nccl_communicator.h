// Reductions in the memory of an NVIDIA GPU over NCCL, on a communicator and a high-priority stream
// of its own. Built only with HVD_P3_WITH_CUDA. Used by the engine thread.
#ifndef HVD_P3_TRANSPORT_NCCL_COMMUNICATOR_H_
#define HVD_P3_TRANSPORT_NCCL_COMMUNICATOR_H_

#include <memory>
#include <string>

#include "transport/device_communicator.h"

namespace hvd_p3 {

// What rank 0 makes and all ranks need in order to find each other: bytes to be sent as they are.
// Any thread may call it; it needs no GPU of its own.
Status MakeNcclId(std::string* id);

// Does not connect yet. `id`: of rank 0. A communicator that is destroyed without Abort ends in
// agreement with the other ranks, which should destroy theirs within two seconds; otherwise it
// aborts.
std::unique_ptr<DeviceCommunicator> MakeNcclCommunicator(const std::string& id, int rank, int size);

}  // namespace hvd_p3

#endif  // HVD_P3_TRANSPORT_NCCL_COMMUNICATOR_H_
