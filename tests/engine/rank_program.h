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

namespace hvd_p3 {

class RankProgram {
 public:
  RankProgram(const Scenario& scenario, int rank, Engine* engine);

  // Submits all steps. A tensor is submitted again only after its previous result is there.
  void Run();
  // Waits for everything, then compares results with what the ranks' inputs sum up to.
  void Finish();
  // Writes completions, statuses and the engine's trace as one JSON object.
  void Report(std::ostream& output);

 private:
  struct Reduction {
    int tensor = 0;
    int step = 0;
    std::vector<char> input;
    std::vector<char> output;
    Ticket ticket;
    bool completed = false;
    bool correct = false;
    Status status;
  };

  void SubmitTensor(int tensor, int step);
  void WaitFor(Reduction* reduction);

  const Scenario& scenario_;
  const int rank_;
  Engine* const engine_;
  std::vector<TensorSpec> specs_;
  std::vector<TensorHandle> handles_;
  std::vector<std::unique_ptr<Reduction>> reductions_;
  std::vector<Reduction*> latest_;  // by tensor
};

}  // namespace hvd_p3

#endif  // HVD_P3_TESTS_ENGINE_RANK_PROGRAM_H_
