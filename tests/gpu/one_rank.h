// An engine with NCCL on one rank and one GPU, as in a job of one process. Used by the main thread.
#ifndef HVD_P3_TESTS_GPU_ONE_RANK_H_
#define HVD_P3_TESTS_GPU_ONE_RANK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/engine.h"
#include "core/ticket.h"
#include "device.h"
#include "transport/in_process.h"

namespace hvd_p3 {

class OneRank {
 public:
  explicit OneRank(const EngineSettings& settings);

  Engine* engine() { return engine_.get(); }
  void End() { engine_.reset(); }  // ends the communicator too

  TensorHandle Declare(const TensorSpec& spec);
  std::vector<TensorHandle> Declare(const std::string& group, const std::vector<TensorSpec>& specs);

  // Called on the engine thread with the point in hvd_p3's stream behind the reduction.
  using Enqueued = std::function<void(const std::shared_ptr<StreamEvent>&)>;
  // Reduces `input` into `output`, from the point on that `compute` has come to now. `enqueued` may
  // be null.
  std::shared_ptr<Ticket> Submit(TensorHandle handle, const void* input, void* output,
                                 const ComputeStream& compute, Enqueued enqueued = nullptr);

 private:
  InProcessWorld world_;
  std::unique_ptr<Engine> engine_;
};

// Throws if the reduction fails or does not end.
void WaitFor(Ticket* ticket);

}  // namespace hvd_p3

#endif  // HVD_P3_TESTS_GPU_ONE_RANK_H_
