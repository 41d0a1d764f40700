// The functions of CUDA and NCCL that NcclCommunicator calls, without a GPU and without other
// ranks: they note what is called, and answer as a test asks. Used by the test's thread, and by the
// threads in which NcclCommunicator gives up.
#ifndef HVD_P3_TESTS_NCCL_FAKE_LIBRARIES_H_
#define HVD_P3_TESTS_NCCL_FAKE_LIBRARIES_H_

#include <nccl.h>

#include <string>
#include <vector>

#include "core/types.h"
#include "transport/transport.h"

namespace hvd_p3 {

// What ncclAllReduce was called with.
struct ReducedSegment {
  const void* input = nullptr;
  const void* output = nullptr;
  size_t count = 0;
  ncclDataType_t dtype = ncclInt8;
  bool operator==(const ReducedSegment& other) const {
    return input == other.input && output == other.output && count == other.count &&
           dtype == other.dtype;
  }
};

// What CudaScale was called with.
struct ScaledSegments {
  std::vector<Segment> segments;
  DataType dtype = DataType::kFloat32;
  double factor = 0;
};

struct FakeLibraries {
  // How often the communicator's state is ncclInProgress after each of these.
  int polls_of_connecting = 0;
  int polls_of_launch = 0;
  int polls_of_finalize = 0;
  int polls_of_stream = 0;  // how often the stream is busy
  int polls_of_event = 0;   // how often an event is not reached
  // The communicator's state from now on, if it is an error.
  ncclResult_t error = ncclSuccess;
  bool abort_hangs = false;

  // What was called: "init", "scale", "(", "allreduce", ")", "record", "wait" (of another stream,
  // for an event), "finalize", "destroy", "abort", "destroy stream", with spaces between.
  std::string calls;
  int rank = -1;  // of the communicator
  int size = -1;
  std::vector<ReducedSegment> reduced;
  std::vector<ScaledSegments> scaled;
  std::vector<const void*> waiting_streams;
  // What NcclCommunicator must never do, for example a call of CUDA outside of the GPU's context.
  std::string mistakes;
};

FakeLibraries& Fake();

// Contexts of GPUs that are current on this thread now.
int CurrentContexts();

}  // namespace hvd_p3

#endif  // HVD_P3_TESTS_NCCL_FAKE_LIBRARIES_H_
