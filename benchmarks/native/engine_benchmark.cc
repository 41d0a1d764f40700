// The engine alone: replays training steps over MPI, or on in-process ranks, and prints one JSON
// line on rank 0. Options: see Usage().
#include <getopt.h>
#include <mpi.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "replay.h"
#include "transport/in_process.h"
#include "transport/mpi.h"

namespace hvd_p3 {
namespace {

struct Options {
  std::string layers;
  int in_process_ranks = 0;  // 0: over MPI
  int warmup = 2;
  int steps = 8;
  bool overlapped = true;
  bool timeline = false;
  EngineOptions engine;
};

struct Measured {
  std::vector<double> step_s;
  double cpu_s = 0;  // of the process, per step
  int64_t slices = 0;
  int64_t rounds = 0;
};

[[noreturn]] void Usage() {
  std::fprintf(
      stderr,
      "usage: engine_benchmark --layers FILE [--in-process RANKS] [--warmup N] [--steps N]\n"
      "                        [--immediate] [--timeline] [--slice-bytes N] [--credit-bytes N]\n"
      "FILE has a line per layer: forward and backward seconds, and the number of float32\n"
      "elements of each gradient.\n");
  std::exit(2);
}

// A whole number from `least` on that an int holds.
int Number(const char* text, int least) {
  char* end = nullptr;
  const long long value = std::strtoll(text, &end, 10);  // out of range: the nearest, not an int
  if (end == text || *end != '\0' || value < least || value > std::numeric_limits<int>::max()) {
    std::fprintf(stderr, "engine_benchmark: '%s' is not a whole number from %d on\n", text, least);
    Usage();
  }
  return static_cast<int>(value);
}

Options Parse(int argc, char** argv) {
  enum { kLayers, kInProcess, kWarmup, kSteps, kImmediate, kTimeline, kSlice, kCredit };
  static const option kOptions[] = {{"layers", required_argument, nullptr, kLayers},
                                    {"in-process", required_argument, nullptr, kInProcess},
                                    {"warmup", required_argument, nullptr, kWarmup},
                                    {"steps", required_argument, nullptr, kSteps},
                                    {"immediate", no_argument, nullptr, kImmediate},
                                    {"timeline", no_argument, nullptr, kTimeline},
                                    {"slice-bytes", required_argument, nullptr, kSlice},
                                    {"credit-bytes", required_argument, nullptr, kCredit},
                                    {nullptr, 0, nullptr, 0}};
  Options options;
  for (int chosen = 0; (chosen = getopt_long(argc, argv, "", kOptions, nullptr)) != -1;) {
    switch (chosen) {
      case kLayers:
        options.layers = optarg;
        break;
      case kInProcess:
        options.in_process_ranks = Number(optarg, 1);
        break;
      case kWarmup:
        options.warmup = Number(optarg, 0);
        break;
      case kSteps:
        options.steps = Number(optarg, 1);
        break;
      case kImmediate:
        options.overlapped = false;
        break;
      case kTimeline:
        options.timeline = true;
        break;
      case kSlice:
        options.engine.settings.slice_bytes = Number(optarg, 1);
        break;
      case kCredit:
        options.engine.settings.credit_bytes = Number(optarg, 1);
        break;
      default:
        Usage();
    }
  }
  if (options.layers.empty() || optind != argc) Usage();
  return options;
}

// User and system time of this process so far.
double CpuSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

Measured RunRank(Engine* engine, const Options& options, const std::vector<ReplayLayer>& layers) {
  prctl(PR_SET_TIMERSLACK, 1'000, 0, 0, 0);
  Replay replay(engine, layers, options.overlapped);
  for (int i = 0; i < options.warmup; ++i) replay.Step();
  if (options.timeline) engine->timeline()->Start();
  Measured measured;
  const StatisticsSnapshot before = engine->statistics()->Snapshot();
  const double cpu_before = CpuSeconds();
  for (int i = 0; i < options.steps; ++i) {
    const int64_t start = NowNanoseconds();
    replay.Step();
    measured.step_s.push_back(1e-9 * static_cast<double>(NowNanoseconds() - start));
  }
  const StatisticsSnapshot after = engine->statistics()->Snapshot();
  measured.cpu_s = (CpuSeconds() - cpu_before) / options.steps;
  measured.slices = (after.slices - before.slices) / options.steps;
  measured.rounds = (after.negotiation_rounds - before.negotiation_rounds) / options.steps;
  replay.Finish();
  return measured;
}

void Print(const Measured& measured) {
  std::printf("{\"step_s\": [");
  for (size_t i = 0; i < measured.step_s.size(); ++i) {
    std::printf("%s%.6f", i == 0 ? "" : ", ", measured.step_s[i]);
  }
  std::printf("], \"cpu_s\": %.6f, \"slices\": %lld, \"rounds\": %lld}\n", measured.cpu_s,
              static_cast<long long>(measured.slices), static_cast<long long>(measured.rounds));
  std::fflush(stdout);
}

void RunInProcess(const Options& options, const std::vector<ReplayLayer>& layers) {
  InProcessOptions world_options;
  world_options.size = options.in_process_ranks;
  InProcessWorld world(world_options);
  std::vector<Measured> measured(static_cast<size_t>(options.in_process_ranks));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < options.in_process_ranks; ++rank) {
    ranks.emplace_back([&, rank] {
      Engine engine(options.engine, world.MakeControlChannel(rank), world.MakeTransport(rank));
      measured[static_cast<size_t>(rank)] = RunRank(&engine, options, layers);
      engine.Shutdown(10);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  measured[0].cpu_s /= options.in_process_ranks;
  Print(measured[0]);
}

void RunOverMpi(const Options& options, const std::vector<ReplayLayer>& layers) {
  std::unique_ptr<ControlChannel> control;
  std::unique_ptr<Transport> transport;
  const Status status = MakeMpiTransport(/*horovod_sleeps=*/false, &control, &transport);
  if (!status.ok()) throw std::runtime_error(status.message());
  Engine engine(options.engine, std::move(control), std::move(transport));
  Measured measured = RunRank(&engine, options, layers);
  engine.Shutdown(10);
  double total = 0;
  MPI_Reduce(&measured.cpu_s, &total, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  measured.cpu_s = total / engine.size();
  if (engine.rank() == 0) Print(measured);
}

}  // namespace
}  // namespace hvd_p3

int main(int argc, char** argv) {
  const hvd_p3::Options options = hvd_p3::Parse(argc, argv);
  const bool mpi = options.in_process_ranks == 0;
  int provided = 0;
  if (mpi) MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  try {
    const std::vector<hvd_p3::ReplayLayer> layers = hvd_p3::ReadLayers(options.layers);
    mpi ? hvd_p3::RunOverMpi(options, layers) : hvd_p3::RunInProcess(options, layers);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "engine_benchmark: %s\n", error.what());
    if (mpi) MPI_Abort(MPI_COMM_WORLD, 1);
    return 1;
  }
  if (mpi) MPI_Finalize();
  return 0;
}
