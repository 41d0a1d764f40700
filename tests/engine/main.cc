// Runs a scenario from standard input on in-process ranks and writes what happened as JSON. The
// property tests in test_engine.py drive it; building it with a sanitizer runs them under it.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/engine.h"
#include "rank_program.h"
#include "scenario.h"
#include "simulated_communicator.h"
#include "transport/device_transport.h"
#include "transport/in_process.h"
#include "transport/routing_transport.h"

namespace {

// CPU time of all engine threads of the process. Not of the process: sanitizers have threads of
// their own that poll.
int64_t EngineCpuMicroseconds() {
  int64_t total_ns = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm") >> std::ws, name);
    if (name != hvd_p3::kEngineThreadName) continue;
    int64_t on_cpu_ns = 0;
    std::ifstream(task.path() / "schedstat") >> on_cpu_ns;
    total_ns += on_cpu_ns;
  }
  return total_ns / 1000;
}

hvd_p3::SimulatedNetworkOptions MakeNetworkOptions(const hvd_p3::Scenario& scenario) {
  hvd_p3::SimulatedNetworkOptions options;
  options.size = scenario.ranks;
  options.seed = scenario.seed;
  options.most_delay_us = scenario.most_slice_delay_us;
  options.fails = [&scenario](int64_t sequence, int rank) {
    return sequence == scenario.fail_sequence && rank == scenario.fail_rank;
  };
  return options;
}

hvd_p3::InProcessOptions MakeWorldOptions(const hvd_p3::Scenario& scenario) {
  hvd_p3::InProcessOptions options;
  options.size = scenario.ranks;
  if (scenario.most_slice_delay_us > 0) {
    options.slice_delay_us = [&scenario](int64_t sequence, int rank) {
      const uint64_t mixed =
          (scenario.seed + 131u * static_cast<uint64_t>(sequence) + static_cast<uint64_t>(rank)) *
          0x9e3779b97f4a7c15u;
      const uint64_t most = static_cast<uint64_t>(scenario.most_slice_delay_us);
      return static_cast<int64_t>((mixed >> 32) % (most + 1));
    };
  }
  options.slice_fails = [&scenario](int64_t sequence, int rank) {
    return sequence == scenario.fail_sequence && rank == scenario.fail_rank;
  };
  return options;
}

int64_t Rounds(const std::vector<std::unique_ptr<hvd_p3::Engine>>& engines) {
  int64_t rounds = 0;
  for (const auto& engine : engines) rounds += engine->statistics()->Snapshot().negotiation_rounds;
  return rounds;
}

}  // namespace

int main() {
  using namespace hvd_p3;
  const Scenario scenario = ParseScenario(std::cin);
  EngineOptions options;
  options.settings = {scenario.slice_bytes, scenario.credit_bytes};
  options.trace = true;
  options.stall.warning_s = scenario.stall_warning_s;
  options.stall.timeout_s = scenario.stall_timeout_s;
  std::mutex warnings_mutex;
  std::vector<std::string> warnings;
  options.stall.warn = [&](const std::string& text) {
    const std::lock_guard<std::mutex> lock(warnings_mutex);
    warnings.push_back(text);
  };
  options.timeline_capacity = scenario.timeline_capacity;

  InProcessWorld world(MakeWorldOptions(scenario));
  SimulatedNetwork network(MakeNetworkOptions(scenario));
  std::vector<std::unique_ptr<Engine>> engines;
  std::vector<std::unique_ptr<RankProgram>> programs;
  for (int rank = 0; rank < scenario.ranks; ++rank) {
    std::unique_ptr<Transport> transport = world.MakeTransport(rank);
    if (UsesDevices(scenario) && !scenario.host_transport_only) {
      transport = MakeRoutingTransport(std::move(transport),
                                       MakeDeviceTransport(network.MakeCommunicator(rank)));
    }
    engines.push_back(
        std::make_unique<Engine>(options, world.MakeControlChannel(rank), std::move(transport)));
    programs.push_back(std::make_unique<RankProgram>(scenario, rank, engines.back().get()));
  }

  const auto on_all_ranks = [&](auto&& action) {
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < programs.size(); ++rank) {
      threads.emplace_back([&action, rank] { action(rank); });
    }
    for (std::thread& thread : threads) thread.join();
  };
  on_all_ranks([&](size_t rank) { programs[rank]->Run(); });
  on_all_ranks([&](size_t rank) {
    // The rank of an injected failure ends, as a program that sees the error would, and with it
    // the others, which can no longer complete anything.
    if (scenario.fail_rank >= 0) {
      programs[rank]->Finish();
      engines[rank]->Shutdown(0.2);
    }
    programs[rank]->Finish();
  });

  // Engines may look at the network for a few milliseconds more.
  if (scenario.idle_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const int64_t rounds_before = Rounds(engines);
  const int64_t cpu_before = EngineCpuMicroseconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(scenario.idle_ms));
  const int64_t idle_cpu_us = EngineCpuMicroseconds() - cpu_before;
  const int64_t idle_rounds = Rounds(engines) - rounds_before;

  on_all_ranks([&](size_t rank) {
    engines[rank]->Shutdown(5.0);
    programs[rank]->Compare();
  });
  std::cout << "{\"idle_cpu_us\":" << idle_cpu_us << ",\"idle_rounds\":" << idle_rounds
            << ",\"warnings\":[";
  for (size_t i = 0; i < warnings.size(); ++i) {
    std::cout << (i > 0 ? "," : "") << std::quoted(warnings[i]);
  }
  std::cout << "],\"ranks\":[";
  for (size_t rank = 0; rank < programs.size(); ++rank) {
    if (rank > 0) std::cout << ",";
    programs[rank]->Report(std::cout);
  }
  std::cout << "]}\n";
  return 0;
}
