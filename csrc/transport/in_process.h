// A transport between ranks that are threads of one process: for engine tests, and for a job of one
// rank. Every rank has a ControlChannel and a Transport of the same InProcessWorld.
//
// Thread safety: the world may be shared by the engine threads of all ranks; each channel and
// transport belongs to one engine thread, as in transport.h.
#ifndef HVD_P3_TRANSPORT_IN_PROCESS_H_
#define HVD_P3_TRANSPORT_IN_PROCESS_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "transport/transport.h"

namespace hvd_p3 {

struct InProcessOptions {
  int size = 1;
  // For tests. Microseconds by which the collective with this sequence number completes later on
  // this rank than it could.
  std::function<int64_t(int64_t sequence, int rank)> slice_delay_us;
  // For tests. While true, collectives of this many elements do not complete.
  std::function<bool(int64_t elements)> slice_held;
  // For tests. The slice collective with this sequence number fails on this rank.
  std::function<bool(int64_t sequence, int rank)> slice_fails;
};

class InProcessWorld {
 public:
  explicit InProcessWorld(InProcessOptions options);
  ~InProcessWorld();

  std::unique_ptr<ControlChannel> MakeControlChannel(int rank);
  std::unique_ptr<Transport> MakeTransport(int rank);

  struct State;  // shared with the channels and transports, which may outlive the world

 private:
  const std::shared_ptr<State> state_;
};

}  // namespace hvd_p3

#endif  // HVD_P3_TRANSPORT_IN_PROCESS_H_
