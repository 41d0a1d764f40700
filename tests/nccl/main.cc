// Tests what NcclCommunicator does in each state of a non-blocking communicator, on fake libraries.
// Needs no GPU. Returns 0 if all is right, and otherwise says what is not.
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <string>

#include "fake_libraries.h"
#include "transport/nccl_communicator.h"

namespace hvd_p3 {
namespace {

constexpr int kForever = 1 << 30;
float input[4];
float output[4];
const Segment kSegment{input, output, 4};
const Segment kEmpty{input, output, 0};

bool all_right = true;
std::string test_name;

void Check(bool condition, const std::string& what) {
  if (condition) return;
  all_right = false;
  std::cerr << test_name << ": " << what << "\n";
}

void Opens(DeviceCommunicator* communicator) {
  Device device;
  device.index = 1;
  const Status status = communicator->Open(device);
  Check(status.ok(), "Open: " + status.message());
}

// How many polls it takes until the communicator is ready.
int PollsUntilReady(DeviceCommunicator* communicator) {
  bool ready = false;
  int polls = 0;
  while (!ready && polls < 100) {
    const Status status = communicator->Poll(&ready);
    Check(status.ok(), "Poll: " + status.message());
    ++polls;
  }
  return polls;
}

// Runs `body` on a communicator, ends that, and compares what was called.
void Test(const std::string& name, const FakeLibraries& fake, const std::string& calls,
          const std::function<void(DeviceCommunicator*)>& body) {
  test_name = name;
  Fake() = fake;
  std::string id;
  Check(MakeNcclId(&id).ok(), "MakeNcclId");
  const auto start = std::chrono::steady_clock::now();
  {
    const std::unique_ptr<DeviceCommunicator> communicator = MakeNcclCommunicator(id, 0, 2);
    body(communicator.get());
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  Check(Fake().calls == calls, "calls are '" + Fake().calls + "', not '" + calls + "'");
  Check(Fake().mistakes.empty(), Fake().mistakes);
  Check(CurrentContexts() == 0, "the context of the GPU stays current");
  Check(took.count() < 8, "took " + std::to_string(took.count()) + " s");
}

}  // namespace
}  // namespace hvd_p3

int main() {
  using namespace hvd_p3;
  FakeLibraries fake;
  fake.polls_of_connecting = 3;
  fake.polls_of_finalize = 2;
  fake.polls_of_event = 1;
  Test("a slice of three segments", fake,
       "init ( allreduce allreduce ) finalize destroy destroy stream",
       [](DeviceCommunicator* communicator) {
         Opens(communicator);
         Check(PollsUntilReady(communicator) == 4, "ready before it is connected");
         Check(communicator->AllReduce({kSegment, kEmpty, kSegment}, DataType::kBFloat16).ok(),
               "AllReduce");
         Check(PollsUntilReady(communicator) == 1, "not ready");
         std::shared_ptr<StreamEvent> event;
         Check(communicator->Record(&event).ok() && event != nullptr, "Record");
         bool reached = true;
         Check(event->Test(&reached).ok() && !reached, "an event is reached too early");
         Check(event->Test(&reached).ok() && reached, "an event is not reached");
         Check(event->BlockStream(nullptr).ok(), "BlockStream");
       });
  Test("never opened", fake, "", [](DeviceCommunicator*) {});

  fake.polls_of_launch = kForever;
  Test("a launch that takes long does not block", fake, "init ( allreduce ) abort destroy stream",
       [](DeviceCommunicator* communicator) {
         Opens(communicator);
         PollsUntilReady(communicator);
         Check(communicator->AllReduce({kSegment}, DataType::kFloat32).ok(), "AllReduce");
         bool ready = true;
         Check(communicator->Poll(&ready).ok() && !ready, "ready before it is launched");
       });

  fake = FakeLibraries();
  fake.polls_of_connecting = kForever;
  Test("other ranks never connect", fake, "init abort destroy stream",
       [](DeviceCommunicator* communicator) {
         Opens(communicator);
         bool ready = true;
         Check(communicator->Poll(&ready).ok() && !ready, "ready before it is connected");
       });

  fake = FakeLibraries();
  fake.polls_of_stream = 3;
  Test("an error of another rank", fake, "init abort destroy stream",
       [](DeviceCommunicator* communicator) {
         Opens(communicator);
         Fake().error = ncclRemoteError;
         bool ready = true;
         const Status status = communicator->Poll(&ready);
         Check(status.code() == StatusCode::kTransport && !ready, "no error");
         for (const char* part : {"a remote rank has exited", "socketPoll failed", "NCCL_DEBUG"}) {
           Check(status.message().find(part) != std::string::npos, status.message());
         }
         Check(!communicator->Abort(), "buffers stay in use");
         Check(Fake().polls_of_stream == 0, "what is on the stream was not waited for");
       });

  fake = FakeLibraries();
  fake.polls_of_finalize = kForever;
  Test("other ranks do not end", fake, "init finalize abort destroy stream",
       [](DeviceCommunicator* communicator) { Opens(communicator); });

  test_name = "an id that is cut off";
  Check(!MakeNcclCommunicator("short", 0, 2)->Open(Device{0}).ok(), "no error");

  // Last, since a thread of this test hangs afterwards.
  fake = FakeLibraries();
  fake.abort_hangs = true;
  Test("NCCL does not give up", fake, "init abort destroy stream",
       [](DeviceCommunicator* communicator) {
         Opens(communicator);
         Check(communicator->Abort(), "buffers are said to be free");
       });
  std::_Exit(all_right ? 0 : 1);
}
