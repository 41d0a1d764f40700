// One rank of a scenario: a thread that submits tensors to its engine as a training program would,
// and records what comes back.
#ifndef HVD_P3_TESTS_ENGINE_RANK_PROGRAM_H_
#define HVD_P3_TESTS_ENGINE_RANK_PROGRAM_H_

#include <cstdint>
#include <memory>
#include <ostream>
#include <vector>

#include "core/engine.h"
#include "core/ticket.h"
#include "scenario.h"
#include "simulated_device.h"

namespace hvd_p3 {

class RankProgram {
 public:
  RankProgram(const Scenario& scenario, int rank, Engine* engine);

  // Submits all steps. A tensor is submitted again only after its previous result is there or, on a
  // device, can be used by what is enqueued behind it.
  void Run();
  // Waits for everything.
  void Finish();
  // Compares results with what the ranks' inputs sum up to. After the engine's shutdown.
  void Compare();
  // Writes completions, statuses and the engine's trace as one JSON object.
  void Report(std::ostream& output);

 private:
  struct Reduction {
    int tensor = 0;
    int step = 0;
    std::vector<char> separate_input;
    std::vector<char> output;
    bool in_place = false;
    std::vector<char>& input() { return in_place ? output : separate_input; }
    bool on_device = false;
    bool enqueued = false;           // reported by the engine
    bool overlaps_previous = false;  // submitted before the tensor's previous one completed
    // What the rank's own stream found in the output, behind the event of the reduction.
    std::vector<char> used;
    Ticket available;  // once used or, failing that, once completed
    Ticket ticket;
    bool completed = false;
    bool correct = false;
    Status status;
  };

  void SubmitTensor(int tensor, int step);
  void PutOnDevice(Reduction* reduction, Submission* submission);
  bool MayBeSubmittedAgain(Reduction* reduction);
  void WaitFor(Reduction* reduction);

  const Scenario& scenario_;
  const int rank_;
  Engine* const engine_;
  std::vector<TensorSpec> specs_;
  std::vector<TensorHandle> handles_;
  std::vector<std::unique_ptr<Reduction>> reductions_;
  std::vector<Reduction*> latest_;                   // by tensor
  std::unique_ptr<SimulatedStream> compute_stream_;  // null without a device
};

}  // namespace hvd_p3

#endif  // HVD_P3_TESTS_ENGINE_RANK_PROGRAM_H_
