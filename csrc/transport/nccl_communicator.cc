#include "transport/nccl_communicator.h"

#include <nccl.h>

#include <chrono>
#include <cstring>
#include <future>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "device/cuda_event.h"
#include "device/cuda_scale.h"
#include "device/cuda_support.h"

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 14, 3)
#error "hvd_p3 needs NCCL 2.14.3 or newer, the first with non-blocking communicators"
#endif

namespace hvd_p3 {
namespace {

using Clock = std::chrono::steady_clock;

// How long the destructor waits for the other ranks to end their communicators too.
constexpr std::chrono::seconds kFinalizeTime{2};
// How long Abort waits for NCCL's kernels to leave the GPU. Several versions of NCCL have not
// returned from ncclCommAbort at times, and a rank that hangs tells nobody of the error.
constexpr std::chrono::seconds kAbortTime{5};
constexpr std::chrono::milliseconds kPollInterval{1};
// How long AllReduce waits for NCCL to launch a kernel, which it does in a thread that it starts
// for each group. The engine would look again later, and nothing else can be enqueued in between.
constexpr std::chrono::microseconds kLaunchTime{50};

// `comm` may be null. NCCL's last message is of this process and may be older than the error.
Status FromNccl(ncclResult_t code, const char* call, ncclComm_t comm) {
  if (code == ncclSuccess || code == ncclInProgress) return {};
  const char* details = ncclGetLastError(comm);
  std::string text = std::string(call) + " failed: " + ncclGetErrorString(code);
  if (details != nullptr && *details != '\0') text += std::string(" (") + details + ")";
  return {StatusCode::kTransport,
          text +
              ". Another rank, its GPU or the network between GPUs may have failed: look for "
              "the first error in the output of all ranks, run again with NCCL_DEBUG=WARN, and "
              "see `hvd-p3 doctor` for the settings of NCCL"};
}

ncclDataType_t NcclType(DataType dtype) {
  switch (dtype) {
    case DataType::kFloat16:
      return ncclFloat16;
    case DataType::kBFloat16:
      return ncclBfloat16;
    case DataType::kFloat64:
      return ncclFloat64;
    case DataType::kInt32:
      return ncclInt32;
    case DataType::kInt64:
      return ncclInt64;
    case DataType::kFloat32:
      break;
  }
  return ncclFloat32;
}

// Runs `call` until it no longer returns `pending`, for up to `time`. Returns its last result.
template <typename Result, typename Call>
Result PollFor(Clock::duration time, Result pending, Call&& call) {
  const Clock::time_point end = Clock::now() + time;
  Result result = call();
  while (result == pending && Clock::now() < end) {
    std::this_thread::sleep_for(kPollInterval);
    result = call();
  }
  return result;
}

class NcclCommunicator : public DeviceCommunicator {
 public:
  NcclCommunicator(const std::string& id, int rank, int size) : id_(id), rank_(rank), size_(size) {}
  ~NcclCommunicator() override;

  int size() const override { return size_; }
  Status Open(const Device& device) override;
  Status Poll(bool* ready) override;
  Status Scale(const std::vector<Segment>& segments, DataType dtype, double factor) override;
  Status AllReduce(const std::vector<Segment>& segments, DataType dtype) override;
  Status Record(std::shared_ptr<StreamEvent>* event) override;
  bool Abort() override;

 private:
  ncclResult_t State() const;
  bool FinalizeComm();

  const std::string id_;
  const int rank_;
  const int size_;
  int device_index_ = Device::kHost;
  cudaStream_t stream_ = nullptr;
  // Non-blocking: NCCL connects to other ranks and launches kernels in threads of its own, and its
  // state tells when they are done.
  ncclComm_t comm_ = nullptr;
};

NcclCommunicator::~NcclCommunicator() {
  if (comm_ != nullptr && !FinalizeComm()) Abort();
  if (stream_ == nullptr) return;
  const ScopedCudaDevice current(device_index_);
  // Returns at once; CUDA frees the stream when its work is done.
  if (current.status().ok()) cudaStreamDestroy(stream_);
}

Status NcclCommunicator::Open(const Device& device) {
  device_index_ = device.index;
  const ScopedCudaDevice current(device_index_);
  Status status = current.status();
  if (!status.ok()) return status;
  ncclUniqueId id;
  if (id_.size() != sizeof(id.internal)) {
    return {StatusCode::kInvalidArgument,
            "the id of the NCCL communicator has " + std::to_string(id_.size()) +
                " bytes; all ranks need the same version of hvd_p3 and NCCL"};
  }
  std::memcpy(id.internal, id_.data(), sizeof(id.internal));
  int least = 0;
  int greatest = 0;
  status = FromCuda(cudaDeviceGetStreamPriorityRange(&least, &greatest),
                    "cudaDeviceGetStreamPriorityRange");
  if (!status.ok()) return status;
  // Blocks of a stream of high priority are placed on the GPU before those of the program's kernels
  // that wait there. Non-blocking: does not wait for CUDA's default stream.
  status = FromCuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest),
                    "cudaStreamCreateWithPriority");
  if (status.ok()) status = LoadCudaScale();
  if (!status.ok()) return status;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return FromNccl(ncclCommInitRankConfig(&comm_, size_, id, rank_, &config),
                  "ncclCommInitRankConfig", comm_);
}

ncclResult_t NcclCommunicator::State() const {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t result = ncclCommGetAsyncError(comm_, &state);
  return result == ncclSuccess ? state : result;
}

Status NcclCommunicator::Poll(bool* ready) {
  const ncclResult_t state = State();
  *ready = state == ncclSuccess;
  return FromNccl(state, "NCCL's communication", comm_);
}

Status NcclCommunicator::Scale(const std::vector<Segment>& segments, DataType dtype,
                               double factor) {
  const ScopedCudaDevice current(device_index_);
  if (!current.status().ok()) return current.status();
  return CudaScale(segments, dtype, factor, stream_);
}

Status NcclCommunicator::AllReduce(const std::vector<Segment>& segments, DataType dtype) {
  const ScopedCudaDevice current(device_index_);
  if (!current.status().ok()) return current.status();
  // A group is one launch, and one operation for NCCL, without a copy of the segments.
  Status status = FromNccl(ncclGroupStart(), "ncclGroupStart", comm_);
  if (!status.ok()) return status;
  for (const Segment& segment : segments) {
    if (segment.count == 0 || !status.ok()) continue;
    status =
        FromNccl(ncclAllReduce(segment.input, segment.output, static_cast<size_t>(segment.count),
                               NcclType(dtype), ncclSum, comm_, stream_),
                 "ncclAllReduce", comm_);
  }
  // Also after an error: every start needs its end.
  const ncclResult_t result = ncclGroupEnd();
  if (!status.ok()) return status;
  const Clock::time_point end = Clock::now() + kLaunchTime;
  while (result == ncclInProgress && State() == ncclInProgress && Clock::now() < end) {
    std::this_thread::yield();
  }
  return FromNccl(result, "ncclGroupEnd", comm_);
}

Status NcclCommunicator::Record(std::shared_ptr<StreamEvent>* event) {
  return RecordCudaEvent(device_index_, stream_, event);
}

bool NcclCommunicator::Abort() {
  if (comm_ == nullptr) return false;
  // In a thread of its own, since it may not return. That thread is left alone then.
  std::promise<void> promise;
  std::future<void> aborted = promise.get_future();
  const auto abort = [comm = std::exchange(comm_, nullptr),
                      device_index = device_index_](std::promise<void> done) {
    const ScopedCudaDevice current(device_index);
    ncclCommAbort(comm);
    done.set_value();
  };
  bool in_use = true;
  try {
    std::thread(abort, std::move(promise)).detach();
    in_use = aborted.wait_for(kAbortTime) != std::future_status::ready;
  } catch (const std::system_error&) {
    // The process cannot start a thread, and ends without the communicator's end.
  }
  const ScopedCudaDevice current(device_index_);
  if (!in_use && current.status().ok()) {
    // What else is on the stream, such as the scaling of outputs, takes no longer than it would
    // without an error. After an error of the GPU itself nothing runs any more.
    in_use = PollFor(kAbortTime, cudaErrorNotReady, [this] { return cudaStreamQuery(stream_); }) ==
             cudaErrorNotReady;
  }
  return in_use;
}

// Returns whether the communicator has ended together with those of the other ranks.
bool NcclCommunicator::FinalizeComm() {
  const ScopedCudaDevice current(device_index_);
  if (!current.status().ok()) return false;
  // NCCL finalizes only what is ready.
  if (State() != ncclSuccess) return false;
  const ncclResult_t result = ncclCommFinalize(comm_);
  if (result != ncclSuccess && result != ncclInProgress) return false;
  if (PollFor(kFinalizeTime, ncclInProgress, [this] { return State(); }) != ncclSuccess) {
    return false;
  }
  ncclCommDestroy(std::exchange(comm_, nullptr));
  return true;
}

}  // namespace

Status MakeNcclId(std::string* id) {
  ncclUniqueId made;
  const Status status = FromNccl(ncclGetUniqueId(&made), "ncclGetUniqueId", nullptr);
  if (status.ok()) id->assign(made.internal, sizeof(made.internal));
  return status;
}

std::unique_ptr<DeviceCommunicator> MakeNcclCommunicator(const std::string& id, int rank,
                                                         int size) {
  return std::make_unique<NcclCommunicator>(id, rank, size);
}

}  // namespace hvd_p3
