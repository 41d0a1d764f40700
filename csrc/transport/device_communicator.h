// What DeviceTransport needs from a library that reduces device memory, such as NCCL: this rank's
// communicator and its stream, on which all work is done in the order in which it is enqueued.
// All methods are called by the engine thread of one process only. None blocks, but Abort and the
// destructor may take some seconds.
//
// The library may need time to set up a communicator or an operation. Between a call of Open or
// AllReduce and the next Poll that reports `ready`, nothing but Poll and Abort is called.
#ifndef HVD_P3_TRANSPORT_DEVICE_COMMUNICATOR_H_
#define HVD_P3_TRANSPORT_DEVICE_COMMUNICATOR_H_

#include <memory>

#include "core/status.h"
#include "core/types.h"
#include "device/stream_event.h"
#include "transport/transport.h"

namespace hvd_p3 {

class DeviceCommunicator {
 public:
  // Ends the communicator. Called when nothing is in flight, or after Abort.
  virtual ~DeviceCommunicator() = default;
  virtual int size() const = 0;

  // Starts to connect this rank to the others, for buffers on `device`. Called once, before all
  // that follows; all ranks call it, in any order with respect to each other.
  virtual Status Open(const Device& device) = 0;

  // Whether the previous call is complete and the stream can take more work. Reports errors of the
  // library and of other ranks at any time, also of what was enqueued earlier.
  virtual Status Poll(bool* ready) = 0;

  // Enqueues: output = factor * input, for all segments. `output` may equal `input`. Integers are
  // multiplied in float64 and truncated toward zero, as core/arithmetic.h does on the host.
  virtual Status Scale(const std::vector<Segment>& segments, DataType dtype, double factor) = 0;

  // Enqueues: output = sum over ranks(input), for all segments as one message. `output` may equal
  // `input`.
  virtual Status AllReduce(const std::vector<Segment>& segments, DataType dtype) = 0;

  // The point behind all that was enqueued so far.
  virtual Status Record(std::shared_ptr<StreamEvent>* event) = 0;

  // Gives up everything in flight; no method but the destructor is called afterwards. Returns
  // whether buffers of what was given up may still be written to, as Transport::Abort does; if not,
  // events of this stream are reached or fail.
  virtual bool Abort() = 0;
};

}  // namespace hvd_p3

#endif  // HVD_P3_TRANSPORT_DEVICE_COMMUNICATOR_H_
