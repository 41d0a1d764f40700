// Replays training steps on an engine without computing: each layer's forward and backward pass is
// a sleep, each gradient a buffer. Used by one thread per rank.
#ifndef HVD_P3_BENCHMARKS_REPLAY_H_
#define HVD_P3_BENCHMARKS_REPLAY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/engine.h"
#include "core/ticket.h"

namespace hvd_p3 {

struct ReplayLayer {
  std::vector<int64_t> elements;  // of each gradient, float32
  double forward_s = 0;
  double backward_s = 0;
};

// Reads lines "forward_s backward_s elements...", one per layer. Throws std::runtime_error.
std::vector<ReplayLayer> ReadLayers(const std::string& path);

class Replay {
 public:
  // With `overlapped`, a layer's forward pass waits for the layer's own gradients of the step
  // before; without, each step ends when all gradients are reduced.
  Replay(Engine* engine, const std::vector<ReplayLayer>& layers, bool overlapped);

  // Runs one step. Throws std::runtime_error if a reduction fails.
  void Step();
  // Waits for everything in flight.
  void Finish();

 private:
  struct Gradient {
    TensorHandle handle = 0;
    std::vector<float> input;
    std::vector<float> output;
    std::shared_ptr<Ticket> ticket;  // null: nothing in flight
  };

  void Wait(size_t layer);

  Engine* const engine_;
  const std::vector<ReplayLayer> layers_;
  const bool overlapped_;
  std::vector<std::vector<Gradient>> gradients_;  // by layer
};

}  // namespace hvd_p3

#endif  // HVD_P3_BENCHMARKS_REPLAY_H_
