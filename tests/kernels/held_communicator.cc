#include "held_communicator.h"

#include <cstring>
#include <utility>

#include "core/arithmetic.h"
#include "simulated_device.h"

namespace hvd_p3 {
namespace {

class HeldCommunicator : public DeviceCommunicator {
 public:
  explicit HeldCommunicator(std::shared_ptr<Hold> hold) : hold_(std::move(hold)) {}

  int size() const override { return 1; }
  Status Open(const Device&) override { return {}; }

  Status Poll(bool* ready) override {
    *ready = !hold_->failed();
    if (*ready) return {};
    return {StatusCode::kTransport, "injected failure"};
  }

  Status Scale(const std::vector<Segment>& segments, DataType dtype, double factor) override {
    stream_.Enqueue([segments, dtype, factor] {
      for (const Segment& segment : segments) {
        hvd_p3::Scale(dtype, segment.input, segment.output, segment.count, factor);
      }
    });
    return {};
  }

  Status AllReduce(const std::vector<Segment>& segments, DataType dtype) override {
    stream_.Enqueue([this, segments, dtype] {
      if (!hold_->Wait()) return;
      for (const Segment& segment : segments) {
        const auto bytes = static_cast<size_t>(segment.count * ElementBytes(dtype));
        std::memmove(segment.output, segment.input, bytes);
      }
    });
    return {};
  }

  Status Record(std::shared_ptr<StreamEvent>* event) override {
    *event = stream_.Record();
    hold_->Enqueued();
    return {};
  }

  bool Abort() override {
    stream_.Abort();
    hold_->Abort();
    return false;
  }

 private:
  const std::shared_ptr<Hold> hold_;
  SimulatedStream stream_{0, 0};
};

}  // namespace

void Hold::Begin() {
  const std::lock_guard<std::mutex> lock(mutex_);
  held_ = true;
}

void Hold::Release() {
  const std::lock_guard<std::mutex> lock(mutex_);
  held_ = false;
  changed_.notify_all();
}

void Hold::Fail() {
  const std::lock_guard<std::mutex> lock(mutex_);
  failed_ = true;
}

int64_t Hold::enqueued() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return enqueued_;
}

bool Hold::failed() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return failed_;
}

void Hold::Enqueued() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++enqueued_;
}

void Hold::Abort() {
  const std::lock_guard<std::mutex> lock(mutex_);
  aborted_ = true;
  changed_.notify_all();
}

bool Hold::Wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return !held_ || aborted_; });
  return !aborted_;
}

std::unique_ptr<DeviceCommunicator> MakeHeldCommunicator(std::shared_ptr<Hold> hold) {
  return std::make_unique<HeldCommunicator>(std::move(hold));
}

}  // namespace hvd_p3
