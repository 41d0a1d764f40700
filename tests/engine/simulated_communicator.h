// A library that reduces the memory of simulated devices, with what makes NCCL hard to use: it
// takes time to connect and to enqueue an operation, an operation blocks its stream until all ranks
// have come, ranks must enqueue the same operations in the same order, and errors come later.
#ifndef HVD_P3_TESTS_ENGINE_SIMULATED_COMMUNICATOR_H_
#define HVD_P3_TESTS_ENGINE_SIMULATED_COMMUNICATOR_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "transport/device_communicator.h"

namespace hvd_p3 {

struct SimulatedNetworkOptions {
  int size = 1;
  uint64_t seed = 0;
  int64_t most_delay_us = 0;  // of each piece of work on a stream
  // The operation with this sequence number fails on this rank, some time after it was enqueued.
  std::function<bool(int64_t sequence, int rank)> fails;
};

// Shared by the communicators of all ranks, which may outlive it.
class SimulatedNetwork {
 public:
  explicit SimulatedNetwork(SimulatedNetworkOptions options);
  ~SimulatedNetwork();

  // Used by the rank's engine thread.
  std::unique_ptr<DeviceCommunicator> MakeCommunicator(int rank);

  struct State;

 private:
  const std::shared_ptr<State> state_;
};

}  // namespace hvd_p3

#endif  // HVD_P3_TESTS_ENGINE_SIMULATED_COMMUNICATOR_H_
