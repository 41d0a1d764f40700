// Tests what NcclCommunicator does in each state of a non-blocking communicator, on fake libraries.
// Needs no GPU. Returns 0 if all is right, and otherwise says what is not.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fake_libraries.h"
#include "transport/device_transport.h"
#include "transport/nccl_communicator.h"

namespace hvd_p3 {
namespace {

constexpr int kForever = 1 << 30;
constexpr int kRank = 3;
constexpr int kSize = 5;
// Only their addresses are used.
char input[4];
char output[4];
char other_input[2];
char other_output[2];
const Segment kSegment{input, output, 4};
const Segment kOther{other_input, other_output, 2};
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
    const std::unique_ptr<DeviceCommunicator> communicator = MakeNcclCommunicator(id, kRank, kSize);
    body(communicator.get());
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  Check(Fake().calls == calls, "calls are '" + Fake().calls + "', not '" + calls + "'");
  Check(Fake().mistakes.empty(), Fake().mistakes);
  Check(CurrentContexts() == 0, "the context of the GPU stays current");
  Check(took.count() < 8, "took " + std::to_string(took.count()) + " s");
}

// Reduces a slice as the engine does, and compares all that reaches CUDA and NCCL.
void TestReduction(const SliceReduction& reduction, ncclDataType_t nccl_type) {
  const bool prescales = reduction.prescale != 1.0;
  const bool postscales = reduction.postscale != 1.0;
  test_name = std::string("reduction of ") + DataTypeName(reduction.dtype) + " with the factors " +
              std::to_string(reduction.prescale) + " and " + std::to_string(reduction.postscale);
  Fake() = FakeLibraries();
  Fake().polls_of_launch = 1000;  // is not through when AllReduce returns
  std::string id;
  Check(MakeNcclId(&id).ok(), "MakeNcclId");
  {
    const std::unique_ptr<Transport> transport =
        MakeDeviceTransport(MakeNcclCommunicator(id, kRank, kSize));
    std::unique_ptr<Collective> collective;
    Check(transport->Start(reduction, &collective).ok(), "Start");
    int turns = 0;
    while (collective->Completion() == nullptr && ++turns < 10 * Fake().polls_of_launch) {
      Check(transport->Progress().ok(), "Progress");
    }
    bool done = false;
    Check(collective->Test(&done).ok() && done, "the slice is not reduced");
  }
  const std::string calls = std::string("init ") + (prescales ? "scale " : "") +
                            "( allreduce allreduce ) " + (postscales ? "scale " : "") +
                            "record finalize destroy destroy stream";
  Check(Fake().calls == calls, "calls are '" + Fake().calls + "', not '" + calls + "'");
  Check(Fake().mistakes.empty(), Fake().mistakes);
  std::vector<ReducedSegment> reduced;
  for (const Segment& segment : reduction.segments) {
    reduced.push_back({prescales ? segment.output : segment.input, segment.output,
                       static_cast<size_t>(segment.count), nccl_type});
  }
  Check(Fake().reduced == reduced, "NCCL reduces other buffers, counts or types");
  size_t scaled = 0;
  for (const bool before : {true, false}) {
    if (!(before ? prescales : postscales)) continue;
    Check(scaled < Fake().scaled.size(), "a factor is missing");
    if (scaled == Fake().scaled.size()) return;
    const ScaledSegments& given = Fake().scaled[scaled++];
    const double factor = before ? reduction.prescale : reduction.postscale;
    Check(given.dtype == reduction.dtype && given.factor == factor, "another type or factor");
    Check(given.segments.size() == reduction.segments.size(), "other segments are scaled");
    for (size_t i = 0; i < std::min(given.segments.size(), reduction.segments.size()); ++i) {
      const Segment& expected = reduction.segments[i];
      Check(given.segments[i].input == (before ? expected.input : expected.output) &&
                given.segments[i].output == expected.output &&
                given.segments[i].count == expected.count,
            "other buffers or counts are scaled");
    }
  }
  Check(scaled == Fake().scaled.size(), "it is scaled too often");
}

// A sum with and without factors, and an average, which is a sum with a factor behind it.
void TestReductions() {
  constexpr std::pair<DataType, ncclDataType_t> kTypes[] = {
      {DataType::kFloat16, ncclFloat16}, {DataType::kBFloat16, ncclBfloat16},
      {DataType::kFloat32, ncclFloat32}, {DataType::kFloat64, ncclFloat64},
      {DataType::kInt32, ncclInt32},     {DataType::kInt64, ncclInt64}};
  constexpr std::pair<double, double> kFactors[] = {{1.0, 1.0}, {1.0, 1.0 / kSize}, {0.5, 3.0}};
  for (const auto& [dtype, nccl_type] : kTypes) {
    for (const auto& [prescale, postscale] : kFactors) {
      TestReduction({{kSegment, kOther}, dtype, prescale, postscale, Device{1}}, nccl_type);
    }
  }
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
       "init ( allreduce allreduce ) record wait finalize destroy destroy stream",
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
         void* const compute = &all_right;
         Check(event->BlockStream(compute).ok(), "BlockStream");
         Check(Fake().waiting_streams == std::vector<const void*>{compute}, "another stream waits");
         Check(Fake().rank == kRank && Fake().size == kSize, "another rank or number of ranks");
       });
  TestReductions();
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
