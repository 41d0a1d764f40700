// The device under the ops of this library: a compute stream, and an engine of one rank that
// reduces on the device. One at a time in a process; any thread may use it.
#ifndef HVD_P3_TESTS_KERNELS_SIMULATION_H_
#define HVD_P3_TESTS_KERNELS_SIMULATION_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "held_communicator.h"
#include "simulated_device.h"

namespace hvd_p3 {

struct Simulation {
  const std::shared_ptr<Hold> reductions = std::make_shared<Hold>();
  const std::shared_ptr<Hold> computation = std::make_shared<Hold>();
  std::atomic<int64_t> waits{0};  // of the compute stream for reductions, as the ops ask for them
  SimulatedStream compute{0, 0};
};

// Null before `simulation_start`.
Simulation* CurrentSimulation();

}  // namespace hvd_p3

#endif  // HVD_P3_TESTS_KERNELS_SIMULATION_H_
