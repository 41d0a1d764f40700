#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "cases.h"
#include "checks.h"
#include "core/clock.h"
#include "one_rank.h"
#include "values.h"

namespace hvd_p3 {
namespace {

constexpr int64_t kBusyUs = 300'000;
constexpr int64_t kMostNs = 50'000'000;  // of the host, in which the kernel is far from its end

// A tensor whose reduction needs kernels, and not copies alone, also on one rank.
Case MakeScaledCase(int64_t count) {
  Case made = MakeCase("tensor", DataType::kFloat32, count, 0);
  made.spec.prescale = 0.5;
  made.spec.postscale = 3.0;
  return made;
}

// The first reduction connects and loads kernels, for which CUDA may wait for the GPU.
TensorHandle DeclareAndReduce(OneRank* rank, const Case& tensor, const ComputeStream& compute) {
  const TensorHandle handle = rank->Declare(tensor.spec);
  WaitFor(rank->Submit(handle, tensor.input->data(), tensor.output->data(), compute).get());
  return handle;
}

void FillGpu(const ComputeStream& stream, int64_t microseconds, int waves) {
  LaunchFilling(stream.get(), microseconds, waves);
  std::this_thread::sleep_for(std::chrono::milliseconds(10));  // by then it has begun
}

// What the engine thread saw when the reduction was enqueued. Written before the ticket completes.
struct AtEnqueued {
  bool came = false;
  bool reached = true;  // the reduction was complete already
  bool busy = false;    // the kernel ran, both before and after the call
  int64_t host_ns = 0;  // of the call
  Status status;
};

}  // namespace

void CheckPushes(Report* report) {
  OneRank rank(EngineSettings{});
  const ComputeStream compute;
  const Case tensor = MakeCase("tensor", DataType::kFloat32, kMiB, 0);
  const TensorHandle handle = DeclareAndReduce(&rank, tensor, compute);

  const DeviceMemory gradient(tensor.host.size());
  LaunchBusy(compute.get(), kBusyUs);
  Must(cudaMemcpyAsync(gradient.data(), tensor.input->data(), tensor.host.size(),
                       cudaMemcpyDeviceToDevice, compute.get()),
       "cudaMemcpyAsync");
  const int64_t before = NowNanoseconds();
  const std::shared_ptr<Ticket> ticket =
      rank.Submit(handle, gradient.data(), tensor.output->data(), compute);
  const int64_t host_ns = NowNanoseconds() - before;
  const bool busy = compute.busy();
  report->Check("recording an event and submitting do not wait for a kernel that runs",
                busy && host_ns < kMostNs, Milliseconds(host_ns));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  report->Check("nothing is reduced before the gradient is computed",
                compute.busy() && ticket->completions() == 0, "");
  WaitFor(ticket.get());
  report->Check("the reduction of what a busy stream computed is right",
                CountDifferent(tensor.spec.dtype, tensor.output->ToHost(), tensor.host) == 0, "");
}

void CheckPulls(Report* report) {
  OneRank rank(EngineSettings{});
  const ComputeStream compute;
  const ComputeStream reader;
  const ComputeStream filling;
  const Case tensor = MakeScaledCase(kMiB);
  const TensorHandle handle = DeclareAndReduce(&rank, tensor, compute);
  Must(cudaMemset(tensor.output->data(), 0, tensor.host.size()), "cudaMemset");
  Must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");

  // While no kernel finds a place, the reduction is enqueued and does not begin. The copy to the
  // host needs no place: without the wait it would run at once, and find zeros.
  PinnedMemory used(tensor.host.size());
  FillGpu(filling, kBusyUs, 1);
  AtEnqueued seen;
  const auto read = [&](const std::shared_ptr<StreamEvent>& event) {
    seen.came = true;
    seen.busy = filling.busy();
    const int64_t before = NowNanoseconds();
    seen.status = event->BlockStream(reader.get());
    seen.host_ns = NowNanoseconds() - before;
    if (seen.status.ok()) {
      seen.status = FromCuda(cudaMemcpyAsync(used.data(), tensor.output->data(), tensor.host.size(),
                                             cudaMemcpyDeviceToHost, reader.get()),
                             "cudaMemcpyAsync");
    }
    if (seen.status.ok()) seen.status = event->Test(&seen.reached);
    seen.busy = seen.busy && filling.busy();
  };
  WaitFor(rank.Submit(handle, tensor.input->data(), tensor.output->data(), compute, read).get());
  Must(seen.status);
  reader.Synchronize();
  const bool unfinished = seen.came && seen.busy && !seen.reached;
  report->Check("a reduction is handed out while the GPU has still to begin with it", unfinished,
                seen.came ? "" : "it was not handed out");
  report->Check("making a stream wait for it does not block the host",
                unfinished && seen.host_ns < kMostNs, Milliseconds(seen.host_ns));
  report->Check(
      "work of that stream finds the result",
      unfinished && CountDifferent(tensor.spec.dtype, used.bytes(), Expected(tensor)) == 0, "");
}

void CheckStreamPriority(Report* report) {
  constexpr int64_t kWaveUs = 2'000;
  constexpr int kWaves = 200;
  constexpr int64_t kAllNs = 1000 * kWaveUs * kWaves;
  OneRank rank(EngineSettings{});
  const ComputeStream compute;
  const ComputeStream filling;
  const Case tensor = MakeScaledCase(kMiB);
  const TensorHandle handle = DeclareAndReduce(&rank, tensor, compute);
  FillGpu(filling, kWaveUs, kWaves);
  const int64_t before = NowNanoseconds();
  WaitFor(rank.Submit(handle, tensor.input->data(), tensor.output->data(), compute).get());
  const int64_t took_ns = NowNanoseconds() - before;
  const bool busy = filling.busy();
  filling.Synchronize();
  report->Check("a reduction overtakes blocks of a kernel that fills the GPU, by its priority",
                busy && took_ns < kAllNs / 2,
                Milliseconds(took_ns) + " of " + Milliseconds(kAllNs));
}

}  // namespace hvd_p3
