#include "python/shadow.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "shadow/channel.h"
#include "shadow/in_process_channel.h"
#include "shadow/mpi_channel.h"

namespace py = pybind11;

namespace hvd_p3 {
namespace {

// Becomes hvd_p3._engine.ChannelClosedError, a RuntimeError.
class ChannelClosedError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// With the GIL held.
void ThrowIfError(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk:
      return;
    case StatusCode::kInvalidArgument:
    case StatusCode::kMismatch:
      throw py::value_error(status.message());
    case StatusCode::kTimedOut:
      PyErr_SetString(PyExc_TimeoutError, status.message().c_str());
      throw py::error_already_set();
    case StatusCode::kShutdown:
      throw ChannelClosedError(status.message());
    default:
      throw std::runtime_error(status.message());
  }
}

std::shared_ptr<Channel> MakeMpiChannel(const std::string& name, double timeout_s) {
  std::shared_ptr<MpiChannel> channel;
  Status status;
  {
    const py::gil_scoped_release release;
    status = MpiChannel::Make(name, timeout_s, &channel);
  }
  ThrowIfError(status);
  return channel;
}

void Send(Channel& channel, int rank, int tag, const py::buffer& message) {
  const py::buffer_info view = message.request();
  if (!PyBuffer_IsContiguous(view.view(), 'C')) {
    throw py::value_error("send needs an array that is contiguous in memory");
  }
  Status status;
  {
    const py::gil_scoped_release release;
    status = channel.Send(rank, tag, view.ptr, static_cast<size_t>(view.size * view.itemsize));
  }
  ThrowIfError(status);
}

void Flush(Channel& channel, double timeout_s) {
  Status status;
  {
    const py::gil_scoped_release release;
    status = channel.Flush(timeout_s);
  }
  ThrowIfError(status);
}

// An array that owns the bytes that arrived.
py::array_t<uint8_t> AsArray(std::vector<char> bytes) {
  auto* const kept = new std::vector<char>(std::move(bytes));
  const py::capsule owner(kept, [](void* held) { delete static_cast<std::vector<char>*>(held); });
  const auto* const data = reinterpret_cast<const uint8_t*>(kept->data());
  return py::array_t<uint8_t>(static_cast<py::ssize_t>(kept->size()), data, owner);
}

py::tuple Receive(Channel& channel, int rank, int tag, double timeout_s) {
  ChannelMessage message;
  Status status;
  {
    const py::gil_scoped_release release;
    status = channel.Receive(rank, tag, timeout_s, &message);
  }
  ThrowIfError(status);
  return py::make_tuple(message.from, message.tag, AsArray(std::move(message.bytes)));
}

void AllReduce(Channel& channel, const py::array& array, double timeout_s,
               const std::vector<int>& ranks, int64_t generation, int64_t slice_bytes) {
  const std::string dtype = py::str(py::dtype(array.dtype()));
  const auto parsed = DataTypeFromName(dtype);
  if (!parsed) throw py::value_error("all_reduce sums float32 or float64, received " + dtype);
  if (!(array.flags() & py::array::c_style) || !array.writeable()) {
    throw py::value_error("all_reduce needs an array that is writeable and contiguous in memory");
  }
  py::array kept = array;
  void* const data = kept.mutable_data();
  Status status;
  {
    const py::gil_scoped_release release;
    status =
        channel.AllReduce(data, array.size(), *parsed, ranks, generation, slice_bytes, timeout_s);
  }
  ThrowIfError(status);
}

}  // namespace

void BindShadow(py::module_& module) {
  py::register_exception<ChannelClosedError>(module, "ChannelClosedError", PyExc_RuntimeError);

  py::class_<Channel, std::shared_ptr<Channel>>(module, "ShadowChannel")
      .def_property_readonly("name", &Channel::name)
      .def_property_readonly("rank", &Channel::rank)
      .def_property_readonly("size", &Channel::size)
      .def("send", &Send, py::arg("rank"), py::arg("tag"), py::arg("message"))
      .def("flush", &Flush, py::arg("timeout_s"))
      .def("receive", &Receive, py::arg("rank"), py::arg("tag"), py::arg("timeout_s"))
      .def("all_reduce", &AllReduce, py::arg("array"), py::arg("timeout_s"), py::arg("ranks"),
           py::arg("generation"), py::arg("slice_bytes"))
      .def("close", &Channel::Close, py::call_guard<py::gil_scoped_release>());
  module.attr("ANY") = Channel::kAny;
  module.def("mpi_channel", &MakeMpiChannel, py::arg("name"), py::arg("timeout_s"));
  module.def("in_process_channels", &MakeInProcessChannels, py::arg("name"), py::arg("size"));
  module.def("close_channels", &MpiChannel::CloseAll, py::call_guard<py::gil_scoped_release>());
}

}  // namespace hvd_p3
