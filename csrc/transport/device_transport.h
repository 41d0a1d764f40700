// Slices in device memory. Starts what the engine asks for on the communicator's one stream, in
// order, as soon as the communicator can take it, and without blocking the host: an event behind
// each slice tells when it is complete. Used by the engine thread.
#ifndef HVD_P3_TRANSPORT_DEVICE_TRANSPORT_H_
#define HVD_P3_TRANSPORT_DEVICE_TRANSPORT_H_

#include <memory>

#include "transport/device_communicator.h"
#include "transport/transport.h"

namespace hvd_p3 {

// The communicator is opened for the device of the first slice, which all others must be on too.
std::unique_ptr<Transport> MakeDeviceTransport(std::unique_ptr<DeviceCommunicator> communicator);

}  // namespace hvd_p3

#endif  // HVD_P3_TRANSPORT_DEVICE_TRANSPORT_H_
