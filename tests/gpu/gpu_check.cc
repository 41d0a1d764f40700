// Checks hvd_p3's parts that need a GPU, on one GPU and one rank, without TensorFlow and MPI.
// Prints a report in Markdown; returns 0 if all checks passed. tools/gpu_check.sh builds it and
// runs it; docs/gpu-check.md says what it covers.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <ctime>
#include <exception>
#include <iostream>
#include <string>

#include "checks.h"
#include "device.h"

namespace hvd_p3 {
namespace {

std::string Version(int number, int of_major) {
  return std::to_string(number / of_major) + "." + std::to_string(number % of_major / 10);
}

std::string NcclVersion(int code) {
  return std::to_string(code / 10000) + "." + std::to_string(code / 100 % 100) + "." +
         std::to_string(code % 100);
}

void PrintMachine(std::ostream& output) {
  Must(cudaSetDevice(0), "cudaSetDevice");
  cudaDeviceProp properties{};
  int driver = 0;
  int runtime = 0;
  int nccl = 0;
  Must(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  Must(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  Must(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  ncclGetVersion(&nccl);
  char date[32];
  const std::time_t now = std::time(nullptr);
  std::strftime(date, sizeof(date), "%Y-%m-%d", std::gmtime(&now));
  output << "# GPU check of " << date << "\n\n"
         << properties.name << ", compute capability " << properties.major << "."
         << properties.minor << "; CUDA runtime " << Version(runtime, 1000) << ", driver for CUDA "
         << Version(driver, 1000) << "; NCCL " << NcclVersion(nccl) << " (built with "
         << NcclVersion(NCCL_VERSION_CODE) << "); one rank.\n\n";
}

void Run(const char* name, void (*check)(Report*), Report* report) {
  std::cerr << name << "\n";
  try {
    check(report);
  } catch (const std::exception& error) {
    report->Check(name, false, error.what());
  }
}

}  // namespace
}  // namespace hvd_p3

int main() {
  using namespace hvd_p3;
  try {
    PrintMachine(std::cout);
  } catch (const std::exception& error) {
    std::cerr << "gpu_check: " << error.what() << ".\n";
    return 1;
  }
  Report report;
  Run("scaling", &CheckScale, &report);
  Run("results of the engine", &CheckResults, &report);
  Run("pushes", &CheckPushes, &report);
  Run("pulls", &CheckPulls, &report);
  Run("priority of the stream", &CheckStreamPriority, &report);
  Run("order of slices", &CheckOrderOfSlices, &report);
  Run("time of slices", &MeasureSlices, &report);
  Run("ends", &CheckEnds, &report);
  report.Print(std::cout);
  return report.passed() ? 0 : 1;
}
