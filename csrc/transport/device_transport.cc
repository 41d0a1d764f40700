#include "transport/device_transport.h"

#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device/stream_event.h"

namespace hvd_p3 {
namespace {

// Shared by the transport, which enqueues it, and the engine, which waits for it.
struct DeviceSlice {
  SliceReduction reduction;
  std::shared_ptr<StreamEvent> completion;  // null before the slice is enqueued
};

class DeviceCollective : public Collective {
 public:
  explicit DeviceCollective(std::shared_ptr<const DeviceSlice> slice) : slice_(std::move(slice)) {}

  Status Test(bool* done) override {
    *done = false;
    if (slice_->completion == nullptr) return {};
    return slice_->completion->Test(done);
  }
  std::shared_ptr<StreamEvent> Completion() const override { return slice_->completion; }

 private:
  const std::shared_ptr<const DeviceSlice> slice_;
};

std::vector<Segment> InPlace(std::vector<Segment> segments) {
  for (Segment& segment : segments) segment.input = segment.output;
  return segments;
}

class DeviceTransport : public Transport {
 public:
  explicit DeviceTransport(std::unique_ptr<DeviceCommunicator> communicator)
      : communicator_(std::move(communicator)) {}

  bool takes_device_memory() const override { return true; }

  // The order of a sum depends on where an element stands, except where there is only one order.
  bool sums_independent_of_slices() const override { return communicator_->size() <= 2; }

  Status Start(const SliceReduction& reduction, std::unique_ptr<Collective>* collective) override {
    if (!device_) {
      const Status status = communicator_->Open(reduction.device);
      if (!status.ok()) return status;
      device_ = reduction.device.index;
    }
    if (reduction.device.index != *device_) {
      return {StatusCode::kInvalidArgument,
              "this rank has tensors on the devices " + std::to_string(*device_) + " and " +
                  std::to_string(reduction.device.index) +
                  ", but hvd_p3 uses one for each rank; start a rank for each device, and make "
                  "only its own visible to it: "
                  "tf.config.set_visible_devices(gpus[hvd_p3.local_rank()], 'GPU')"};
    }
    auto slice = std::make_shared<DeviceSlice>(DeviceSlice{reduction, nullptr});
    to_enqueue_.push_back(slice);
    *collective = std::make_unique<DeviceCollective>(slice);
    return Progress();
  }

  Status Progress() override {
    if (!device_) return {};
    while (true) {
      bool ready = false;
      Status status = communicator_->Poll(&ready);
      if (!status.ok() || !ready) return status;
      if (enqueuing_ != nullptr) {
        status = FinishEnqueuing();
        if (!status.ok()) return status;
      }
      if (to_enqueue_.empty()) return {};
      enqueuing_ = std::move(to_enqueue_.front());
      to_enqueue_.pop_front();
      status = StartEnqueuing(enqueuing_->reduction);
      if (!status.ok()) return status;
    }
  }

  bool Abort() override { return communicator_->Abort(); }

 private:
  // The gradient is scaled into the output, so no other memory is needed.
  Status StartEnqueuing(const SliceReduction& reduction) {
    if (reduction.prescale == 1.0) {
      return communicator_->AllReduce(reduction.segments, reduction.dtype);
    }
    const Status status =
        communicator_->Scale(reduction.segments, reduction.dtype, reduction.prescale);
    if (!status.ok()) return status;
    return communicator_->AllReduce(InPlace(reduction.segments), reduction.dtype);
  }

  // What follows an all-reduce can be enqueued only when the library has enqueued that.
  Status FinishEnqueuing() {
    const std::shared_ptr<DeviceSlice> slice = std::move(enqueuing_);
    const SliceReduction& reduction = slice->reduction;
    if (reduction.postscale != 1.0) {
      const Status status =
          communicator_->Scale(InPlace(reduction.segments), reduction.dtype, reduction.postscale);
      if (!status.ok()) return status;
    }
    return communicator_->Record(&slice->completion);
  }

  const std::unique_ptr<DeviceCommunicator> communicator_;
  std::optional<int> device_;  // index, once the communicator is open or being opened
  std::deque<std::shared_ptr<DeviceSlice>> to_enqueue_;
  std::shared_ptr<DeviceSlice> enqueuing_;  // given to the library, which may not be through
};

}  // namespace

std::unique_ptr<Transport> MakeDeviceTransport(std::unique_ptr<DeviceCommunicator> communicator) {
  return std::make_unique<DeviceTransport>(std::move(communicator));
}

}  // namespace hvd_p3
