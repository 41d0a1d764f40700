#include "scenario.h"

#include <cstdlib>
#include <iostream>
#include <sstream>

namespace hvd_p3 {
namespace {

TensorSpec ParseTensor(std::istream& line) {
  TensorSpec tensor;
  std::string dtype;
  std::string op;
  line >> tensor.name >> dtype >> tensor.priority >> op >> tensor.prescale >> tensor.postscale;
  tensor.dtype = *DataTypeFromName(dtype);
  tensor.op = op == "sum" ? ReduceOp::kSum : ReduceOp::kAverage;
  for (int64_t dimension = 0; line >> dimension;) tensor.shape.push_back(dimension);
  return tensor;
}

}  // namespace

bool UsesDevices(const Scenario& scenario) { return !scenario.on_device.empty(); }

Scenario ParseScenario(std::istream& input) {
  Scenario scenario;
  for (std::string text; std::getline(input, text);) {
    std::istringstream line(text);
    std::string word;
    if (!(line >> word)) continue;
    if (word == "ranks") {
      line >> scenario.ranks;
    } else if (word == "steps") {
      line >> scenario.steps;
    } else if (word == "slice_bytes") {
      line >> scenario.slice_bytes;
    } else if (word == "credit_bytes") {
      line >> scenario.credit_bytes;
    } else if (word == "seed") {
      line >> scenario.seed;
    } else if (word == "most_slice_delay_us") {
      line >> scenario.most_slice_delay_us;
    } else if (word == "most_event_delay_us") {
      line >> scenario.most_event_delay_us;
    } else if (word == "idle_ms") {
      line >> scenario.idle_ms;
    } else if (word == "tensor") {  // name dtype priority op prescale postscale dimensions...
      scenario.tensors.push_back(ParseTensor(line));
    } else if (word == "submit") {  // rank step (tensor delay_us)...
      int rank = 0;
      int step = 0;
      line >> rank >> step;
      auto& list = scenario.submissions[{rank, step}];
      std::pair<int, int64_t> entry;
      while (line >> entry.first >> entry.second) list.push_back(entry);
    } else if (word == "shape") {  // rank tensor dimensions...
      int rank = 0;
      line >> rank;
      auto& [tensor, shape] = scenario.shapes[rank];
      line >> tensor;
      for (int64_t dimension = 0; line >> dimension;) shape.push_back(dimension);
    } else if (word == "device" || word == "in_place") {  // rank tensors...
      int rank = 0;
      line >> rank;
      std::set<int>& tensors = (word == "device" ? scenario.on_device : scenario.in_place)[rank];
      for (int tensor = 0; line >> tensor;) tensors.insert(tensor);
    } else if (word == "device_index") {  // tensor index
      int tensor = 0;
      line >> tensor;
      line >> scenario.device_index[tensor];
    } else if (word == "arguments") {  // rank text
      int rank = 0;
      line >> rank;
      line >> scenario.arguments[rank];
    } else if (word == "announces") {  // rank
      int rank = 0;
      line >> rank;
      scenario.announcing.insert(rank);
    } else if (word == "host_transport_only") {
      scenario.host_transport_only = true;
    } else if (word == "fail") {  // sequence rank
      line >> scenario.fail_sequence >> scenario.fail_rank;
    } else if (word == "shutdown") {  // rank step
      line >> scenario.shutdown_rank >> scenario.shutdown_step;
    } else if (word == "shutdown_at_end") {
      scenario.shutdown_at_end = true;
    } else if (word == "stall_s") {  // until the warning, until the error
      line >> scenario.stall_warning_s >> scenario.stall_timeout_s;
    } else if (word == "shutdown_timeout_s") {
      line >> scenario.shutdown_timeout_s;
    } else if (word == "timeline") {  // first_step end_step
      line >> scenario.timeline_first_step >> scenario.timeline_end_step;
    } else if (word == "timeline_capacity") {
      line >> scenario.timeline_capacity;
    } else {
      std::cerr << "unknown word in scenario: " << text << "\n";
      std::exit(2);
    }
  }
  return scenario;
}

}  // namespace hvd_p3
