#include "python/timeline.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/engine.h"
#include "core/global_engine.h"
#include "transport/mpi_messages.h"

namespace py = pybind11;

namespace hvd_p3 {
namespace {

void ThrowIfError(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.message());
}

// What the running engine records for a timeline. Keeps the engine, so that the record can be taken
// after it has stopped.
class Recording {
 public:
  explicit Recording(bool rounds) : engine_(GlobalEngine()) {
    if (engine_ == nullptr) throw std::runtime_error("the engine is not running");
    engine_->timeline()->Start(rounds);
  }
  ~Recording() { Stop(); }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  void Stop() { engine_->timeline()->Stop(); }

  py::dict Take() {
    const Trace::Taken taken = engine_->timeline()->Take();
    py::array_t<TraceRecord> records(static_cast<py::ssize_t>(taken.records.size()));
    std::copy(taken.records.begin(), taken.records.end(), records.mutable_data());
    py::list tensors;
    for (const Engine::DeclaredTensor& tensor : engine_->DeclaredTensors()) {
      tensors.append(
          py::make_tuple(tensor.handle, tensor.group, tensor.spec.name, tensor.spec.priority));
    }
    py::dict result;
    result["records"] = records;
    result["dropped"] = taken.dropped;
    result["tensors"] = tensors;
    return result;
  }

 private:
  const std::shared_ptr<Engine> engine_;
};

std::unique_ptr<MpiMessages> MakeMessages() {
  std::unique_ptr<MpiMessages> made;
  ThrowIfError(MpiMessages::Make(&made));
  return made;
}

void Send(MpiMessages& messages, int rank, const std::string& bytes, int tag, double timeout_s) {
  ThrowIfError(messages.Send(rank, tag, bytes, timeout_s));
}

py::bytes Receive(MpiMessages& messages, int rank, int tag, double timeout_s) {
  std::string bytes;
  {
    const py::gil_scoped_release release;
    ThrowIfError(messages.Receive(rank, tag, timeout_s, &bytes));
  }
  return bytes;
}

std::vector<std::string> KindNames() {
  std::vector<std::string> names;
  for (int kind = 0; *TraceKindName(static_cast<TraceKind>(kind)) != '\0'; ++kind) {
    names.emplace_back(TraceKindName(static_cast<TraceKind>(kind)));
  }
  return names;
}

}  // namespace

void BindTimeline(py::module_& module) {
  PYBIND11_NUMPY_DTYPE(TraceRecord, kind, tensor, slice, offset, bytes, bytes_in_flight, time_ns);

  py::class_<Recording>(module, "Recording")
      .def(py::init<bool>(), py::arg("rounds"))
      .def("stop", &Recording::Stop)
      .def("take", &Recording::Take);
  py::class_<MpiMessages>(module, "MpiMessages")
      .def(py::init(&MakeMessages), py::call_guard<py::gil_scoped_release>())
      .def("send", &Send, py::arg("rank"), py::arg("message"), py::arg("tag"), py::arg("timeout_s"),
           py::call_guard<py::gil_scoped_release>())
      .def("receive", &Receive, py::arg("rank"), py::arg("tag"), py::arg("timeout_s"));
  // The name of each number in the field `kind` of a record.
  module.attr("RECORD_KINDS") = KindNames();
}

}  // namespace hvd_p3
