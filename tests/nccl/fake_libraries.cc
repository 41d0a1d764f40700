#include "fake_libraries.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "device/cuda_scale.h"

namespace hvd_p3 {
namespace {

std::mutex mutex;  // guards the calls, mistakes and counts
int polls_left = 0;
thread_local int contexts = 0;

const ncclComm_t kComm = reinterpret_cast<ncclComm_t>(0x10);
const cudaStream_t kStream = reinterpret_cast<cudaStream_t>(0x20);
const cudaEvent_t kEvent = reinterpret_cast<cudaEvent_t>(0x30);
constexpr int kGreatestPriority = -5;

void Called(const std::string& name) {
  const std::lock_guard<std::mutex> lock(mutex);
  Fake().calls += (Fake().calls.empty() ? "" : " ") + name;
}

void Expect(bool condition, const std::string& mistake) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (!condition) Fake().mistakes += mistake + "; ";
}

cudaError_t InContext(const char* call) {
  Expect(contexts == 1, std::string(call) + " outside of the GPU's context");
  return cudaSuccess;
}

bool CountDown(int* count) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (*count == 0) return false;
  --*count;
  return true;
}

CUresult Init(unsigned int) { return CUDA_SUCCESS; }
CUresult DeviceGet(CUdevice* device, int index) {
  *device = index;
  return CUDA_SUCCESS;
}
CUresult Retain(CUcontext* context, CUdevice) {
  *context = reinterpret_cast<CUcontext>(0x40);
  return CUDA_SUCCESS;
}
CUresult Push(CUcontext) {
  ++contexts;
  return CUDA_SUCCESS;
}
CUresult Pop(CUcontext*) {
  --contexts;
  return CUDA_SUCCESS;
}
CUresult ErrorString(CUresult, const char** text) {
  *text = "an error";
  return CUDA_SUCCESS;
}

cudaError_t FindInDriver(const char* name, void** address) {
  static const std::map<std::string, void*> functions = {
      {"cuInit", reinterpret_cast<void*>(&Init)},
      {"cuDeviceGet", reinterpret_cast<void*>(&DeviceGet)},
      {"cuDevicePrimaryCtxRetain", reinterpret_cast<void*>(&Retain)},
      {"cuCtxPushCurrent", reinterpret_cast<void*>(&Push)},
      {"cuCtxPopCurrent", reinterpret_cast<void*>(&Pop)},
      {"cuGetErrorString", reinterpret_cast<void*>(&ErrorString)}};
  *address = functions.at(name);
  return cudaSuccess;
}

}  // namespace

FakeLibraries& Fake() {
  static FakeLibraries fake;
  return fake;
}

int CurrentContexts() { return contexts; }

// The kernels need a GPU; gpu_check checks them.
Status LoadCudaScale() { return {}; }
Status CudaScale(const std::vector<Segment>& segments, DataType dtype, double factor,
                 void* stream) {
  Expect(stream == kStream, "scaling on another stream");
  Expect(polls_left == 0, "scaling before the last call is complete");
  InContext("CudaScale");
  Called("scale");
  Fake().scaled.push_back({segments, dtype, factor});
  return {};
}

}  // namespace hvd_p3

using namespace hvd_p3;

extern "C" {

#if CUDART_VERSION >= 12050
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** address, unsigned int,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  *result = cudaDriverEntryPointSuccess;
  return FindInDriver(name, address);
}
#elif CUDART_VERSION >= 12000
cudaError_t cudaGetDriverEntryPoint(const char* name, void** address, unsigned long long,
                                    cudaDriverEntryPointQueryResult* result) {
  *result = cudaDriverEntryPointSuccess;
  return FindInDriver(name, address);
}
#else
cudaError_t cudaGetDriverEntryPoint(const char* name, void** address, unsigned long long) {
  return FindInDriver(name, address);
}
#endif

const char* cudaGetErrorString(cudaError_t) { return "an error"; }
const char* cudaGetErrorName(cudaError_t) { return "cudaError"; }

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = kGreatestPriority;
  return InContext("cudaDeviceGetStreamPriorityRange");
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
  Expect(flags == cudaStreamNonBlocking, "the stream waits for the default stream");
  Expect(priority == kGreatestPriority, "the stream has a low priority");
  *stream = kStream;
  return InContext("cudaStreamCreateWithPriority");
}
cudaError_t cudaStreamDestroy(cudaStream_t) {
  Called("destroy stream");
  return InContext("cudaStreamDestroy");
}
cudaError_t cudaStreamQuery(cudaStream_t) {
  InContext("cudaStreamQuery");
  return CountDown(&Fake().polls_of_stream) ? cudaErrorNotReady : cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  Expect(flags == cudaEventDisableTiming, "the event takes times");
  *event = kEvent;
  return InContext("cudaEventCreateWithFlags");
}
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t stream) {
  Expect(stream == kStream, "an event on another stream");
  Expect(polls_left == 0, "an event before the last call is complete");
  Called("record");
  return InContext("cudaEventRecord");
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  Expect(event == kEvent, "the state of another event");
  InContext("cudaEventQuery");
  return CountDown(&Fake().polls_of_event) ? cudaErrorNotReady : cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t) { return InContext("cudaEventDestroy"); }
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  Expect(event == kEvent && flags == 0, "a stream waits for something else");
  Called("wait");
  Fake().waiting_streams.push_back(stream);
  return InContext("cudaStreamWaitEvent");
}

const char* ncclGetErrorString(ncclResult_t) { return "a remote rank has exited"; }
const char* ncclGetLastError(ncclComm_t) { return "socketPoll failed"; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id, 7, sizeof(*id));
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  Fake().rank = rank;
  Fake().size = size;
  Expect(config->blocking == 0, "the communicator blocks");
  Expect(id.internal[NCCL_UNIQUE_ID_BYTES - 1] == 7, "another id");
  InContext("ncclCommInitRankConfig");
  Called("init");
  *comm = kComm;
  polls_left = Fake().polls_of_connecting;
  return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  Expect(comm == kComm, "the state of another communicator");
  *state = Fake().error;
  if (*state == ncclSuccess && CountDown(&polls_left)) *state = ncclInProgress;
  return ncclSuccess;
}
ncclResult_t ncclGroupStart() {
  Expect(polls_left == 0, "a group before the last call is complete");
  Called("(");
  return ncclSuccess;
}
ncclResult_t ncclAllReduce(const void* input, void* output, size_t count, ncclDataType_t dtype,
                           ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream) {
  Expect(operation == ncclSum && stream == kStream, "another operation or stream");
  Expect(comm == kComm, "a reduction of another communicator");
  InContext("ncclAllReduce");
  Called("allreduce");
  Fake().reduced.push_back({input, output, count, dtype});
  return ncclInProgress;
}
ncclResult_t ncclGroupEnd() {
  Called(")");
  polls_left = Fake().polls_of_launch;
  return ncclInProgress;
}
ncclResult_t ncclCommFinalize(ncclComm_t) {
  Expect(polls_left == 0, "finalized before the last call is complete");
  Called("finalize");
  polls_left = Fake().polls_of_finalize;
  return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t) {
  Called("destroy");
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t) {
  InContext("ncclCommAbort");
  Called("abort");
  while (Fake().abort_hangs) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return ncclSuccess;
}

}  // extern "C"
