#include "transport/nccl_transport.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "transport/device_transport.h"
#include "transport/nccl_communicator.h"
#include "transport/routing_transport.h"

namespace hvd_p3 {
namespace {

class UnavailableCommunicator : public DeviceCommunicator {
 public:
  UnavailableCommunicator(std::string problem, int size)
      : error_(StatusCode::kTransport, std::move(problem)), size_(size) {}

  int size() const override { return size_; }
  Status Open(const Device&) override { return error_; }
  Status Poll(bool* ready) override {
    *ready = false;
    return error_;
  }
  Status Scale(const std::vector<Segment>&, DataType, double) override { return error_; }
  Status AllReduce(const std::vector<Segment>&, DataType) override { return error_; }
  Status Record(std::shared_ptr<StreamEvent>*) override { return error_; }
  bool Abort() override { return false; }

 private:
  const Status error_;
  const int size_;
};

}  // namespace

int VisibleGpus() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();  // or the next caller in this thread would find it
  return 0;
}

NcclMeeting MakeNcclMeeting(bool all_have_gpus) {
  NcclMeeting meeting;
  if (!all_have_gpus) {
    meeting.problem =
        "a tensor is in the memory of a GPU, but some ranks see no GPU; give every rank one "
        "(CUDA_VISIBLE_DEVICES, and as many ranks on each host as it has GPUs), or none";
    return meeting;
  }
  const Status status = MakeNcclId(&meeting.id);
  if (!status.ok()) meeting.problem = status.message();
  return meeting;
}

std::unique_ptr<Transport> AddNcclTransport(std::unique_ptr<Transport> host,
                                            const NcclMeeting& meeting, int rank, int size) {
  std::unique_ptr<DeviceCommunicator> communicator;
  if (meeting.problem.empty()) {
    communicator = MakeNcclCommunicator(meeting.id, rank, size);
  } else {
    communicator = std::make_unique<UnavailableCommunicator>(meeting.problem, size);
  }
  return MakeRoutingTransport(std::move(host), MakeDeviceTransport(std::move(communicator)));
}

}  // namespace hvd_p3
