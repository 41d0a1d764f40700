// Sends slices in host memory to one transport and those in device memory to another. Used by the
// engine thread.
#ifndef HVD_P3_TRANSPORT_ROUTING_TRANSPORT_H_
#define HVD_P3_TRANSPORT_ROUTING_TRANSPORT_H_

#include <memory>

#include "transport/transport.h"

namespace hvd_p3 {

std::unique_ptr<Transport> MakeRoutingTransport(std::unique_ptr<Transport> host,
                                                std::unique_ptr<Transport> device);

}  // namespace hvd_p3

#endif  // HVD_P3_TRANSPORT_ROUTING_TRANSPORT_H_
