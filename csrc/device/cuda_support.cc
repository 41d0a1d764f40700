#include "device/cuda_support.h"

#include <cuda.h>

#include <map>
#include <mutex>
#include <string>

namespace hvd_p3 {
namespace {

constexpr char kLookFurther[] =
    ". Look for the first error in the output of all ranks, and in that of `nvidia-smi`; "
    "`hvd-p3 doctor` shows what this process sees";

// The functions of CUDA's driver that the runtime has no equivalent for. They come through the
// runtime, so that hvd_p3 loads on machines without a driver.
struct Driver {
  Status status;
  decltype(&cuDeviceGet) device_get = nullptr;
  decltype(&cuDevicePrimaryCtxRetain) primary_context_retain = nullptr;
  decltype(&cuCtxPushCurrent) push_context = nullptr;
  decltype(&cuCtxPopCurrent) pop_context = nullptr;
  decltype(&cuGetErrorString) error_string = nullptr;

  Driver() {
    decltype(&cuInit) initialize = nullptr;
    Load("cuInit", &initialize);
    Load("cuDeviceGet", &device_get);
    Load("cuDevicePrimaryCtxRetain", &primary_context_retain);
    Load("cuCtxPushCurrent", &push_context);
    Load("cuCtxPopCurrent", &pop_context);
    Load("cuGetErrorString", &error_string);
    if (status.ok()) status = From(initialize(0), "cuInit");
  }

  template <typename Function>
  void Load(const char* name, Function* function) {
    if (!status.ok()) return;
    // All of them have had their present form since long before this version.
    constexpr unsigned int kVersion = 11030;
    void* address = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    const cudaError_t code =
        cudaGetDriverEntryPointByVersion(name, &address, kVersion, cudaEnableDefault, &result);
#elif CUDART_VERSION >= 12000
    const cudaError_t code = cudaGetDriverEntryPoint(name, &address, cudaEnableDefault, &result);
#else
    const cudaError_t code = cudaGetDriverEntryPoint(name, &address, cudaEnableDefault);
    if (address != nullptr) result = cudaDriverEntryPointSuccess;
#endif
    status = FromCuda(code, "loading CUDA's driver");
    if (status.ok() && (result != cudaDriverEntryPointSuccess || address == nullptr)) {
      status = Status(StatusCode::kTransport, "the NVIDIA driver of this machine has no function " +
                                                  std::string(name) +
                                                  "; install a driver of CUDA 11.3 or newer");
    }
    *function = reinterpret_cast<Function>(address);
  }

  Status From(CUresult code, const char* call) const {
    if (code == CUDA_SUCCESS) return {};
    const char* text = nullptr;
    if (error_string(code, &text) != CUDA_SUCCESS || text == nullptr) text = "unknown error";
    return {StatusCode::kTransport, std::string(call) + " failed: " + text + " (" +
                                        std::to_string(code) + ")" + kLookFurther};
  }
};

const Driver& LoadedDriver() {
  static const auto* driver = new Driver;  // never destroyed: threads and events outlive main
  return *driver;
}

// Retained until the process ends, as TensorFlow does with the contexts of the GPUs that it uses.
Status PrimaryContext(int device_index, CUcontext* context) {
  static std::mutex mutex;
  static auto* contexts = new std::map<int, CUcontext>;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = contexts->find(device_index);
  if (found != contexts->end()) {
    *context = found->second;
    return {};
  }
  const Driver& driver = LoadedDriver();
  if (!driver.status.ok()) return driver.status;
  CUdevice device = 0;
  Status status = driver.From(driver.device_get(&device, device_index), "cuDeviceGet");
  if (status.ok()) {
    status =
        driver.From(driver.primary_context_retain(context, device), "cuDevicePrimaryCtxRetain");
  }
  if (status.ok()) (*contexts)[device_index] = *context;
  return status;
}

}  // namespace

Status FromCuda(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return {};
  return {code == cudaErrorMemoryAllocation ? StatusCode::kOutOfMemory : StatusCode::kTransport,
          std::string(call) + " failed: " + cudaGetErrorString(code) + " (" +
              cudaGetErrorName(code) + ")" + kLookFurther};
}

ScopedCudaDevice::ScopedCudaDevice(int device_index) {
  CUcontext context = nullptr;
  status_ = PrimaryContext(device_index, &context);
  if (!status_.ok()) return;
  const Driver& driver = LoadedDriver();
  status_ = driver.From(driver.push_context(context), "cuCtxPushCurrent");
}

ScopedCudaDevice::~ScopedCudaDevice() {
  if (!status_.ok()) return;
  CUcontext ours = nullptr;
  LoadedDriver().pop_context(&ours);
}

}  // namespace hvd_p3
