#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cases.h"
#include "checks.h"
#include "core/clock.h"
#include "device.h"
#include "one_rank.h"
#include "transport/nccl_communicator.h"
#include "values.h"

namespace hvd_p3 {
namespace {

int64_t ProcessCpuNanoseconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

int64_t CountDifferentResults(OneRank* rank, DataType dtype, ReduceOp op, double prescale,
                              double postscale) {
  const ComputeStream compute;
  std::vector<Case> cases;
  std::vector<TensorSpec> specs;
  // Small ones that share slices, and one that is cut into several.
  for (const int64_t count : {1, 1000, 37, 4000, 250, 1'000'003}) {
    Case made = MakeCase("tensor" + std::to_string(count), dtype, count,
                         static_cast<int64_t>(cases.size()));
    made.spec.op = op;
    made.spec.prescale = prescale;
    made.spec.postscale = postscale;
    specs.push_back(made.spec);
    cases.push_back(std::move(made));
  }
  const std::string group = std::string(DataTypeName(dtype)) + ReduceOpName(op) +
                            std::to_string(prescale) + "," + std::to_string(postscale);
  const std::vector<TensorHandle> handles = rank->Declare(group, specs);
  int64_t different = 0;
  for (int step = 0; step < 3; ++step) {
    std::vector<std::shared_ptr<Ticket>> tickets;
    for (size_t i = 0; i < cases.size(); ++i) {
      tickets.push_back(
          rank->Submit(handles[i], cases[i].input->data(), cases[i].output->data(), compute));
    }
    for (size_t i = 0; i < cases.size(); ++i) {
      WaitFor(tickets[i].get());
      different += CountDifferent(dtype, cases[i].output->ToHost(), Expected(cases[i]));
    }
  }
  return different;
}

std::vector<int64_t> TimesOfStarts(const std::vector<TraceEvent>& events,
                                   const std::string& tensor) {
  std::vector<int64_t> times;
  for (const TraceEvent& event : events) {
    if (event.kind == TraceKind::kStarted && event.tensor == tensor) times.push_back(event.time_ns);
  }
  return times;
}

void MeasureSlicesOf(Report* report, int64_t slice_bytes) {
  constexpr int64_t kSlices = 400;
  EngineSettings settings;
  settings.slice_bytes = slice_bytes;
  settings.credit_bytes = 8 * slice_bytes;
  OneRank rank(settings);
  const ComputeStream compute;
  Case tensor = MakeCase("tensor", DataType::kFloat32, kSlices * slice_bytes / 4, 0);
  tensor.spec.op = ReduceOp::kAverage;
  const TensorHandle handle = rank.Declare(tensor.spec);
  const auto reduce = [&] {
    WaitFor(rank.Submit(handle, tensor.input->data(), tensor.output->data(), compute).get());
  };
  reduce();  // connects, and loads the kernels
  const int64_t slices_before = rank.engine()->statistics()->Snapshot().slices;
  const int64_t wall_before = NowNanoseconds();
  const int64_t cpu_before = ProcessCpuNanoseconds();
  reduce();
  const auto wall_us = 1e-3 * static_cast<double>(NowNanoseconds() - wall_before);
  const auto cpu_us = 1e-3 * static_cast<double>(ProcessCpuNanoseconds() - cpu_before);
  const auto slices =
      static_cast<double>(rank.engine()->statistics()->Snapshot().slices - slices_before);
  char numbers[160];
  std::snprintf(numbers, sizeof(numbers), "%.1f us, %.1f us of processor time, %.2f GB/s",
                wall_us / slices, cpu_us / slices,
                1e-3 * static_cast<double>(tensor.host.size()) / wall_us);
  report->Measured("one slice of " + std::to_string(slice_bytes / 1024) + " KiB", numbers);
}

}  // namespace

void CheckResults(Report* report) {
  OneRank rank(EngineSettings{});
  for (const DataType dtype : kAllTypes) {
    const int64_t different =
        CountDifferentResults(&rank, dtype, ReduceOp::kSum, 1.0, 1.0) +
        CountDifferentResults(&rank, dtype, ReduceOp::kAverage, 1.0, 1.0 / 3) +
        CountDifferentResults(&rank, dtype, ReduceOp::kSum, 0.1, 3.0);
    report->Check(std::string("reduction of ") + DataTypeName(dtype) + " gives the host's bits",
                  different == 0, std::to_string(different) + " elements differ");
  }
}

void CheckOrderOfSlices(Report* report) {
  EngineSettings settings;
  settings.slice_bytes = kMiB;
  settings.credit_bytes = 4 * kMiB;
  OneRank rank(settings);
  const ComputeStream compute;
  const Case late = MakeCase("late", DataType::kFloat32, 256 * kMiB / 4, 10);
  const Case urgent = MakeCase("urgent", DataType::kFloat32, 2 * kMiB / 4, 0);
  const TensorHandle late_handle = rank.Declare(late.spec);
  const TensorHandle urgent_handle = rank.Declare(urgent.spec);
  const auto submit_late = [&] {
    return rank.Submit(late_handle, late.input->data(), late.output->data(), compute);
  };
  WaitFor(submit_late().get());
  rank.engine()->TakeTrace();

  const int64_t slices_before = rank.engine()->statistics()->Snapshot().slices;
  const std::shared_ptr<Ticket> late_ticket = submit_late();
  while (rank.engine()->statistics()->Snapshot().slices < slices_before + 4 &&
         late_ticket->completions() == 0) {
    std::this_thread::yield();
  }
  const std::shared_ptr<Ticket> urgent_ticket =
      rank.Submit(urgent_handle, urgent.input->data(), urgent.output->data(), compute);
  WaitFor(urgent_ticket.get());
  const bool overtook = late_ticket->completions() == 0;
  WaitFor(late_ticket.get());

  const std::vector<TraceEvent> events = rank.engine()->TakeTrace();
  const std::vector<int64_t> late_starts = TimesOfStarts(events, "late");
  const std::vector<int64_t> urgent_starts = TimesOfStarts(events, "urgent");
  const auto before = [&](int64_t time_ns) {
    return std::count_if(late_starts.begin(), late_starts.end(),
                         [time_ns](int64_t start) { return start < time_ns; });
  };
  int64_t submitted_ns = 0;
  for (const TraceEvent& event : events) {
    if (event.kind == TraceKind::kSubmitted && event.tensor == "urgent") {
      submitted_ns = event.time_ns;
    }
  }
  const bool known = !urgent_starts.empty();
  report->Check("an urgent tensor overtakes one of 256 slices that came before it",
                known && overtook && before(urgent_starts.back()) < 256,
                known ? "started after " + std::to_string(before(urgent_starts.front())) +
                            " slices of the other, " +
                            Milliseconds(urgent_starts.front() - submitted_ns) +
                            " after it was submitted"
                      : "it never started");
}

void MeasureSlices(Report* report) {
  for (const int64_t slice_bytes : {120 * int64_t{1024}, kMiB / 2, kMiB, 4 * kMiB}) {
    MeasureSlicesOf(report, slice_bytes);
  }
}

void CheckEnds(Report* report) {
  {
    OneRank rank(EngineSettings{});
    const ComputeStream compute;
    const Case tensor = MakeCase("tensor", DataType::kFloat32, kMiB, 0);
    const TensorHandle handle = rank.Declare(tensor.spec);
    WaitFor(rank.Submit(handle, tensor.input->data(), tensor.output->data(), compute).get());
    rank.engine()->Shutdown(5.0);
    const int64_t before = NowNanoseconds();
    rank.End();
    const int64_t took_ns = NowNanoseconds() - before;
    report->Check("the communicator ends in order", took_ns < 2'000'000'000, Milliseconds(took_ns));
  }
  std::string id;
  Must(MakeNcclId(&id));
  const std::unique_ptr<DeviceCommunicator> alone = MakeNcclCommunicator(id, 0, 2);
  Device device;
  device.index = 0;
  int64_t before = NowNanoseconds();
  Must(alone->Open(device));
  bool ready = true;
  Must(alone->Poll(&ready));
  const int64_t opened_ns = NowNanoseconds() - before;
  before = NowNanoseconds();
  const bool in_use = alone->Abort();
  report->Check("a rank that connects to one that never comes is not blocked and can give up",
                !ready && !in_use,
                "connecting took the host " + Milliseconds(opened_ns) + ", giving up " +
                    Milliseconds(NowNanoseconds() - before));
}

}  // namespace hvd_p3
