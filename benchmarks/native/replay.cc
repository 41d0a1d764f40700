#include "replay.h"

#include <chrono>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace hvd_p3 {
namespace {

constexpr double kTimeoutS = 120;

void ThrowIfError(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.message());
}

// Takes time without using the processor. Follows absolute times, so that late wake-ups do not add
// up within a pass.
class Clock {
 public:
  void Pass(double seconds) {
    until_ += std::chrono::duration_cast<std::chrono::steady_clock::duration>(
        std::chrono::duration<double>(seconds));
    std::this_thread::sleep_until(until_);
  }
  // Computation cannot start before now.
  void NotBeforeNow() { until_ = std::max(until_, std::chrono::steady_clock::now()); }

 private:
  std::chrono::steady_clock::time_point until_ = std::chrono::steady_clock::now();
};

}  // namespace

std::vector<ReplayLayer> ReadLayers(const std::string& path) {
  std::ifstream file(path);
  std::vector<ReplayLayer> layers;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    ReplayLayer layer;
    bool whole = static_cast<bool>(words >> layer.forward_s >> layer.backward_s);
    for (std::string word; whole && words >> word;) {
      size_t read = 0;
      int64_t elements = 0;
      try {
        elements = std::stoll(word, &read);
      } catch (const std::logic_error&) {
      }
      whole = read == word.size() && elements > 0;
      layer.elements.push_back(elements);
    }
    if (!whole) {
      throw std::runtime_error("cannot read a layer from '" + line + "' in " + path +
                               ": it needs two times in seconds, and whole numbers of elements");
    }
    layers.push_back(layer);
  }
  if (layers.empty()) throw std::runtime_error("no layers in " + path);
  return layers;
}

Replay::Replay(Engine* engine, const std::vector<ReplayLayer>& layers, bool overlapped)
    : engine_(engine), layers_(layers), overlapped_(overlapped), gradients_(layers.size()) {
  std::vector<TensorSpec> specs;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    for (const int64_t elements : layers[layer].elements) {
      TensorSpec spec;
      spec.name = "gradient." + std::to_string(specs.size());
      spec.shape = {elements};
      spec.priority = static_cast<int64_t>(layer);
      specs.push_back(spec);
    }
  }
  std::vector<TensorHandle> handles;
  ThrowIfError(engine->DeclareGroup("replay", specs, &handles));
  size_t next = 0;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    for (const int64_t elements : layers[layer].elements) {
      Gradient gradient;
      gradient.handle = handles[next++];
      gradient.input.assign(static_cast<size_t>(elements), 1.0f);
      gradient.output.assign(static_cast<size_t>(elements), 0.0f);
      gradients_[layer].push_back(std::move(gradient));
    }
  }
}

void Replay::Step() {
  Clock clock;
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    Wait(layer);
    clock.NotBeforeNow();
    clock.Pass(layers_[layer].forward_s);
  }
  for (size_t layer = layers_.size(); layer-- > 0;) {
    clock.Pass(layers_[layer].backward_s);
    for (Gradient& gradient : gradients_[layer]) {
      auto ticket = std::make_shared<Ticket>();
      Submission submission;
      submission.input = gradient.input.data();
      submission.output = gradient.output.data();
      submission.done = [ticket](const Status& status) { ticket->Complete(status); };
      gradient.ticket = ticket;
      engine_->Submit(gradient.handle, std::move(submission));
    }
  }
  if (!overlapped_) Finish();
}

void Replay::Finish() {
  for (size_t layer = 0; layer < layers_.size(); ++layer) Wait(layer);
}

void Replay::Wait(size_t layer) {
  for (Gradient& gradient : gradients_[layer]) {
    if (gradient.ticket == nullptr) continue;
    Status status;
    if (!gradient.ticket->Wait(kTimeoutS, &status)) {
      throw std::runtime_error("a reduction was not complete after 120 s");
    }
    ThrowIfError(status);
    gradient.ticket = nullptr;
  }
}

}  // namespace hvd_p3
