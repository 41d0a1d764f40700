#include "simulation.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/engine.h"
#include "core/global_engine.h"
#include "transport/device_transport.h"
#include "transport/in_process.h"
#include "transport/routing_transport.h"

namespace hvd_p3 {
namespace {

std::unique_ptr<Simulation> simulation;

}  // namespace

Simulation* CurrentSimulation() { return simulation.get(); }

}  // namespace hvd_p3

// What kernel_checks.py calls.
extern "C" {

void simulation_start() {
  using namespace hvd_p3;
  simulation = std::make_unique<Simulation>();
  InProcessWorld world(InProcessOptions{});
  EngineOptions options;
  options.first_handle = NextFirstHandle();
  SetGlobalEngine(std::make_shared<Engine>(
      options, world.MakeControlChannel(0),
      MakeRoutingTransport(world.MakeTransport(0),
                           MakeDeviceTransport(MakeHeldCommunicator(simulation->reductions)))));
}

void simulation_stop() {
  using namespace hvd_p3;
  simulation->computation->Release();
  simulation->reductions->Release();
  GlobalEngine()->Shutdown(5.0);
  SetGlobalEngine(nullptr);
  simulation->compute.Synchronize();
  simulation.reset();
}

// Returns the handle of a float32 tensor with this many elements.
int64_t simulation_declare(const char* name, int64_t count) {
  using namespace hvd_p3;
  TensorSpec spec;
  spec.name = name;
  spec.shape = {count};
  spec.op = ReduceOp::kSum;
  std::vector<TensorHandle> handles;
  GlobalEngine()->DeclareGroup(name, {spec}, &handles);
  return handles.front();
}

void simulation_hold_reductions() { hvd_p3::simulation->reductions->Begin(); }
void simulation_release_reductions() { hvd_p3::simulation->reductions->Release(); }
void simulation_fail_reductions() { hvd_p3::simulation->reductions->Fail(); }
int64_t simulation_enqueued_reductions() { return hvd_p3::simulation->reductions->enqueued(); }
int64_t simulation_waits() { return hvd_p3::simulation->waits; }

// Holds up what is computed from now on.
void simulation_hold_computation() {
  const std::shared_ptr<hvd_p3::Hold> computation = hvd_p3::simulation->computation;
  computation->Begin();
  hvd_p3::simulation->compute.Enqueue([computation] { computation->Wait(); });
}
void simulation_release_computation() { hvd_p3::simulation->computation->Release(); }

// Copies on the compute stream. The caller keeps both until `simulation_synchronize`.
void simulation_copy(void* to, const void* from, int64_t bytes) {
  hvd_p3::simulation->compute.Enqueue(
      [to, from, bytes] { std::memcpy(to, from, static_cast<size_t>(bytes)); });
}
void simulation_synchronize() { hvd_p3::simulation->compute.Synchronize(); }

}  // extern "C"
