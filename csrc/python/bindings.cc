// The Python module hvd_p3._engine. Only translates: arguments into engine calls, statuses into
// exceptions. Every call that can block releases the GIL.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <atomic>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/engine.h"
#include "core/global_engine.h"
#include "core/ticket.h"
#include "python/program_watch.h"
#include "python/shadow.h"
#include "python/timeline.h"
#include "transport/in_process.h"
#include "transport/mpi.h"
#ifdef HVD_P3_WITH_CUDA
#include "transport/nccl_transport.h"
#endif

namespace py = pybind11;

namespace hvd_p3 {
namespace {

// Becomes hvd_p3._engine.EngineError, a RuntimeError.
class EngineError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

void ThrowIfError(const Status& status) {
  if (status.ok()) return;
  if (status.code() == StatusCode::kInvalidArgument) throw py::value_error(status.message());
  throw EngineError(status.message());
}

std::shared_ptr<Engine> RunningEngine() {
  std::shared_ptr<Engine> engine = GlobalEngine();
  if (engine == nullptr) throw EngineError("hvd_p3 is not initialised; call hvd_p3.init() first");
  return engine;
}

DataType ParseDataType(const std::string& name) {
  const auto dtype = DataTypeFromName(name);
  if (!dtype) {
    throw py::value_error("dtype " + name +
                          " cannot be reduced; use float16, bfloat16, float32, float64, int32 or "
                          "int64");
  }
  return *dtype;
}

EngineOptions MakeOptions(int64_t slice_bytes, int64_t credit_bytes, bool trace) {
  EngineOptions options;
  options.settings = {slice_bytes, credit_bytes};
  options.trace = trace;
  options.first_handle = NextFirstHandle();
  return options;
}

// How long a program may go on without coming back to Python after its engine has failed by a
// stall.
constexpr double kProgramPatienceS = 10.0;

// What the engine of a rank says on standard error. Not through Python, whose main thread may wait
// for this very tensor with the GIL held.
void SpeakOfStalls(int rank, StallOptions* stall) {
  const std::string on_rank = " on rank " + std::to_string(rank) + ": ";
  stall->warn = [on_rank](const std::string& text) {
    std::cerr << "hvd_p3: warning" + on_rank + text + ".\n";
  };
  stall->failed = [on_rank](const std::string& text, bool found_here) {
    // The step's error comes when the program takes a result, which may be never.
    if (found_here) std::cerr << "hvd_p3: error" + on_rank + text + ".\n";
    WatchProgram(kProgramPatienceS,
                 "hvd_p3: error" + on_rank + text +
                     ". The program waits for other ranks in an operation that cannot be "
                     "cancelled, so this process ends.\n",
                 [] { return GlobalEngine() == nullptr; });
  };
}

void StartMpi(int64_t slice_bytes, int64_t credit_bytes, bool trace, bool horovod_sleeps,
              double stall_warning_s, double stall_timeout_s) {
  std::unique_ptr<ControlChannel> control;
  std::unique_ptr<Transport> transport;
  ThrowIfError(MakeMpiTransport(horovod_sleeps, &control, &transport));
  EngineOptions options = MakeOptions(slice_bytes, credit_bytes, trace);
  options.stall.warning_s = stall_warning_s;
  options.stall.timeout_s = stall_timeout_s;
  SpeakOfStalls(control->rank(), &options.stall);
  SetGlobalEngine(std::make_shared<Engine>(options, std::move(control), std::move(transport)));
}

std::pair<std::string, std::string> TryMpiForPython() {
  std::string library;
  std::string threads;
  ThrowIfError(TryMpi(&library, &threads));
  return {library, threads};
}

// Holds back slices of a single-rank engine, for tests of overlap.
class SliceGate {
 public:
  // Slices of this many elements do not complete; 0 holds none.
  void Hold(int64_t elements) { held_ = elements; }
  bool Holds(int64_t elements) const { return held_ == elements; }

 private:
  std::atomic<int64_t> held_{0};
};

std::shared_ptr<SliceGate> StartSingleRank(int64_t slice_bytes, int64_t credit_bytes, bool trace) {
  auto gate = std::make_shared<SliceGate>();
  InProcessOptions options;
  options.slice_held = [gate](int64_t elements) { return gate->Holds(elements); };
  InProcessWorld world(options);
  std::unique_ptr<Transport> transport = world.MakeTransport(0);
#ifdef HVD_P3_WITH_CUDA
  transport = AddNcclTransport(std::move(transport), MakeNcclMeeting(VisibleGpus() > 0), 0, 1);
#endif
  SetGlobalEngine(std::make_shared<Engine>(MakeOptions(slice_bytes, credit_bytes, trace),
                                           world.MakeControlChannel(0), std::move(transport)));
  return gate;
}

// Returns whether the engine has ended together with those of all ranks.
bool Stop(double timeout_s) {
  const std::shared_ptr<Engine> engine = GlobalEngine();
  if (engine == nullptr) return true;
  engine->Shutdown(timeout_s);
  SetGlobalEngine(nullptr);
  return engine->ended_with_all();
}

using TensorArguments = std::tuple<std::string, std::string, std::vector<int64_t>, int64_t,
                                   std::string, double, double>;

std::vector<TensorSpec> MakeSpecs(const std::vector<TensorArguments>& tensors) {
  std::vector<TensorSpec> specs;
  for (const auto& [tensor, dtype, shape, priority, op, prescale, postscale] : tensors) {
    if (op != "sum" && op != "average") {
      throw py::value_error("op must be 'sum' or 'average', received '" + op + "'");
    }
    specs.push_back({tensor, ParseDataType(dtype), shape, priority,
                     op == "sum" ? ReduceOp::kSum : ReduceOp::kAverage, prescale, postscale});
  }
  return specs;
}

std::vector<TensorHandle> DeclareGroup(const std::string& name,
                                       const std::vector<TensorArguments>& tensors,
                                       const std::string& arguments) {
  std::vector<TensorHandle> handles;
  ThrowIfError(RunningEngine()->DeclareGroup(name, MakeSpecs(tensors), &handles, arguments));
  return handles;
}

std::vector<std::vector<int32_t>> FusedTensors(const std::vector<TensorArguments>& tensors) {
  return RunningEngine()->FusedTensors(MakeSpecs(tensors));
}

py::dict StatisticsDict() {
  const StatisticsSnapshot snapshot = RunningEngine()->statistics()->Snapshot();
  py::dict result;
  result["slices"] = snapshot.slices;
  result["bytes"] = snapshot.bytes;
  result["negotiation_rounds"] = snapshot.negotiation_rounds;
  result["communication_seconds"] = 1e-9 * static_cast<double>(snapshot.communication_ns);
  result["forward_wait_seconds"] = 1e-9 * static_cast<double>(snapshot.forward_wait_ns);
  result["held_bytes"] = snapshot.held_bytes;
  return result;
}

void ProposeSettings(int64_t slice_bytes, int64_t credit_bytes) {
  if (slice_bytes < 1 || credit_bytes < 1) {
    throw py::value_error("slice_bytes and credit_bytes must be at least 1");
  }
  RunningEngine()->ProposeSettings({slice_bytes, credit_bytes});
}

py::dict CurrentSettings() {
  const std::shared_ptr<Engine> engine = RunningEngine();
  const EngineSettings settings = engine->settings();
  py::dict result;
  result["slice_bytes"] = settings.slice_bytes;
  result["credit_bytes"] = settings.credit_bytes;
  result["sums_independent_of_slices"] = engine->sums_independent_of_slices();
  return result;
}

std::vector<py::dict> TakeTrace() {
  std::vector<py::dict> events;
  for (const TraceEvent& event : RunningEngine()->TakeTrace()) {
    py::dict entry;
    entry["kind"] = TraceKindName(event.kind);
    entry["time_ns"] = event.time_ns;
    entry["tensor"] = event.tensor;
    entry["priority"] = event.priority;
    entry["offset"] = event.offset;
    entry["bytes"] = event.bytes;
    entry["bytes_in_flight"] = event.bytes_in_flight;
    events.push_back(std::move(entry));
  }
  return events;
}

// The caller keeps both arrays alive until the ticket is done.
std::shared_ptr<Ticket> Submit(TensorHandle handle, const py::buffer& input,
                               const py::buffer& output) {
  const py::buffer_info in = input.request();
  const py::buffer_info out = output.request(/*writable=*/true);
  if (in.size * in.itemsize != out.size * out.itemsize) {
    throw py::value_error("input and output must have the same number of bytes");
  }
  auto ticket = std::make_shared<Ticket>();
  Submission submission;
  submission.input = in.ptr;
  submission.output = out.ptr;
  submission.done = [ticket](const Status& status) { ticket->Complete(status); };
  RunningEngine()->Submit(handle, std::move(submission));
  return ticket;
}

void Wait(Ticket& ticket, double timeout_s) {
  Status status;
  bool done = false;
  {
    const py::gil_scoped_release release;
    done = ticket.Wait(timeout_s, &status);
  }
  if (!done) {
    throw EngineError("the all-reduce was not complete after " + std::to_string(timeout_s) + " s");
  }
  ThrowIfError(status);
}

}  // namespace
}  // namespace hvd_p3

PYBIND11_MODULE(_engine, module) {
  using namespace hvd_p3;
  module.doc() = "The C++ engine of hvd_p3: one priority tensor queue per process.";
  py::register_exception<EngineError>(module, "EngineError", PyExc_RuntimeError);

  py::class_<Ticket, std::shared_ptr<Ticket>>(module, "Ticket")
      .def("wait", &Wait, py::arg("timeout_s"));
  py::class_<SliceGate, std::shared_ptr<SliceGate>>(module, "SliceGate")
      .def("hold", &SliceGate::Hold, py::arg("elements"));

  module.def("mpi_is_finalized", &MpiIsFinalized);
  module.def("try_mpi", &TryMpiForPython, py::call_guard<py::gil_scoped_release>());
  module.def("start_mpi", &StartMpi, py::arg("slice_bytes"), py::arg("credit_bytes"),
             py::arg("trace"), py::arg("horovod_sleeps"), py::arg("stall_warning_s"),
             py::arg("stall_timeout_s"), py::call_guard<py::gil_scoped_release>());
  module.def("start_single_rank", &StartSingleRank, py::arg("slice_bytes"), py::arg("credit_bytes"),
             py::arg("trace"));
  module.def("stop", &Stop, py::arg("timeout_s"), py::call_guard<py::gil_scoped_release>());
  module.def("abandon", &AbandonGlobalEngine);
  module.def("is_running", [] { return GlobalEngine() != nullptr; });
  module.def("declare_group", &DeclareGroup, py::arg("name"), py::arg("tensors"),
             py::arg("arguments") = "");
  module.def("fused_tensors", &FusedTensors, py::arg("tensors"));
  module.def("submit", &Submit, py::arg("handle"), py::arg("input"), py::arg("output"));
  module.def("propose_settings", &ProposeSettings, py::arg("slice_bytes"), py::arg("credit_bytes"));
  module.def("current_settings", &CurrentSettings);
  module.def("statistics", &StatisticsDict);
  module.def("take_trace", &TakeTrace);
  BindTimeline(module);
  BindShadow(module);
}
