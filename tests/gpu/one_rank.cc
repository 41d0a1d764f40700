#include "one_rank.h"

#include <utility>

#include "device/cuda_event.h"
#include "transport/device_transport.h"
#include "transport/nccl_communicator.h"
#include "transport/routing_transport.h"

namespace hvd_p3 {
namespace {

constexpr int kGpu = 0;
constexpr double kPatienceS = 60;  // what takes longer counts as hanging

std::unique_ptr<Transport> MakeTransport(InProcessWorld* world) {
  std::string id;
  Must(MakeNcclId(&id));
  return MakeRoutingTransport(world->MakeTransport(0),
                              MakeDeviceTransport(MakeNcclCommunicator(id, 0, 1)));
}

}  // namespace

OneRank::OneRank(const EngineSettings& settings) : world_(InProcessOptions{}) {
  EngineOptions options;
  options.settings = settings;
  options.trace = true;
  engine_ = std::make_unique<Engine>(options, world_.MakeControlChannel(0), MakeTransport(&world_));
}

TensorHandle OneRank::Declare(const TensorSpec& spec) { return Declare(spec.name, {spec}).front(); }

std::vector<TensorHandle> OneRank::Declare(const std::string& group,
                                           const std::vector<TensorSpec>& specs) {
  std::vector<TensorHandle> handles;
  Must(engine_->DeclareGroup(group, specs, &handles));
  return handles;
}

std::shared_ptr<Ticket> OneRank::Submit(TensorHandle handle, const void* input, void* output,
                                        const ComputeStream& compute, Enqueued enqueued) {
  std::shared_ptr<StreamEvent> ready;
  Must(RecordCudaEvent(kGpu, compute.get(), &ready));
  auto ticket = std::make_shared<Ticket>();
  Submission submission;
  submission.input = input;
  submission.output = output;
  submission.device.index = kGpu;
  submission.ready = std::move(ready);
  submission.enqueued = std::move(enqueued);
  submission.done = [ticket](const Status& status) { ticket->Complete(status); };
  engine_->Submit(handle, std::move(submission));
  return ticket;
}

void WaitFor(Ticket* ticket) {
  Status status;
  if (!ticket->Wait(kPatienceS, &status)) throw std::runtime_error("a reduction does not end");
  Must(status);
}

}  // namespace hvd_p3
