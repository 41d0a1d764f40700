// What a test asks of the engine: which tensors, submitted when by which rank, and what goes wrong.
// Read from text by ParseScenario; the words are listed there.
#ifndef HVD_P3_TESTS_ENGINE_SCENARIO_H_
#define HVD_P3_TESTS_ENGINE_SCENARIO_H_

#include <cstdint>
#include <iosfwd>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/types.h"

namespace hvd_p3 {

struct Scenario {
  int ranks = 1;
  int steps = 1;
  int64_t slice_bytes = 1024;
  int64_t credit_bytes = 4096;
  uint64_t seed = 0;
  int64_t most_slice_delay_us = 0;  // random by sequence and rank, up to this
  int64_t most_event_delay_us = 0;  // until an input is ready; 0: no events on the host
  int64_t idle_ms = 0;              // measure CPU time for this long after the last step
  std::vector<TensorSpec> tensors;
  // Tensor indices in the order of submission, and microseconds to wait before each.
  std::map<std::pair<int, int>, std::vector<std::pair<int, int64_t>>> submissions;  // (rank, step)
  std::map<int, std::pair<int, std::vector<int64_t>>> shapes;  // rank -> (tensor, its other shape)
  std::map<int, std::set<int>> on_device;  // rank -> its tensors in the memory of a device
  std::map<int, std::set<int>> in_place;   // rank -> its tensors that are reduced in place
  std::map<int, int> device_index;         // tensor -> its device, instead of the first
  std::map<int, std::string> arguments;    // rank -> of its declaration
  std::set<int> announcing;                // ranks that declare the group without tensors
  bool host_transport_only = false;        // although there are tensors on devices
  int64_t fail_sequence = -1;              // this collective fails on `fail_rank`
  int fail_rank = -1;
  int shutdown_rank = -1;  // this rank shuts down before this step
  int shutdown_step = -1;
  bool shutdown_at_end = false;  // every rank shuts down after its last submission, without waiting
  double shutdown_timeout_s = 30.0;
  double stall_warning_s = 0;
  double stall_timeout_s = 0;
  // Every rank records a timeline from the start of the first of these steps to that of the second.
  int timeline_first_step = -1;
  int timeline_end_step = -1;
  size_t timeline_capacity = 1 << 18;
};

// Whether any rank has a tensor in the memory of a device.
bool UsesDevices(const Scenario& scenario);

// Stops the program with a message at a word that it does not know.
Scenario ParseScenario(std::istream& input);

}  // namespace hvd_p3

#endif  // HVD_P3_TESTS_ENGINE_SCENARIO_H_
