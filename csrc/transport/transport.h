// What the engine needs from a library that moves bytes. All methods are called by the engine
// thread of one process only.
//
// Two parts: ControlChannel carries the small messages of negotiation between host memories (MPI);
// Transport carries the slices, in host memory (MPI) or in device memory (NCCL). Collectives that
// start in the same order on all ranks match; an implementation must accept several in flight.
#ifndef HVD_P3_TRANSPORT_TRANSPORT_H_
#define HVD_P3_TRANSPORT_TRANSPORT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/event.h"
#include "core/status.h"
#include "core/types.h"

namespace hvd_p3 {

class StreamEvent;

// One member of a slice: reduce `count` elements from `input` to `output`. The buffers are the same
// or do not overlap, lie on the collective's device, and stay valid until the collective is done.
struct Segment {
  const void* input = nullptr;
  void* output = nullptr;
  int64_t count = 0;
};

// output = postscale * sum over ranks(prescale * input), for all segments as one message. All
// segments are in the memory of one device.
struct SliceReduction {
  std::vector<Segment> segments;
  DataType dtype = DataType::kFloat32;
  double prescale = 1.0;
  double postscale = 1.0;
  Device device;
};

// A collective in flight. Destroying one that is not done is allowed only after Abort.
class Collective {
 public:
  virtual ~Collective() = default;
  // Does not block. Sets `*done` once the outputs are complete on this rank.
  virtual Status Test(bool* done) = 0;
  // For device memory: the point in the transport's stream from which on the outputs are complete,
  // once it is known. Null before that, and always for host memory.
  virtual std::shared_ptr<StreamEvent> Completion() const { return nullptr; }
};

class Transport {
 public:
  virtual ~Transport() = default;
  // Whether slices in device memory can be reduced, or only those in host memory. The same on all
  // ranks.
  virtual bool takes_device_memory() const { return false; }
  virtual Status Start(const SliceReduction& reduction,
                       std::unique_ptr<Collective>* collective) = 0;
  // Moves on whatever is in flight, without blocking. The engine calls it before it tests.
  virtual Status Progress() = 0;
  // Whether an element's sum is the same bits wherever in a slice of whatever length it stands.
  virtual bool sums_independent_of_slices() const = 0;
  // Gives up everything in flight; no method but the destructor is called afterwards. Returns
  // whether buffers of what was given up may still be written to.
  virtual bool Abort() = 0;
};

class ControlChannel {
 public:
  virtual ~ControlChannel() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Starts an in-place bitwise AND of `words` over all ranks; the vector must stay where it is
  // until done. At most one is in flight.
  virtual Status StartAnd(std::vector<uint64_t>* words,
                          std::unique_ptr<Collective>* collective) = 0;
  // Starts the exchange of one byte string per rank; `*all` has `size()` entries once done.
  virtual Status StartAllGather(const std::string& mine, std::vector<std::string>* all,
                                std::unique_ptr<Collective>* collective) = 0;
  // Sends a short message to one rank, without blocking; messages of two ranks keep their order.
  virtual Status Send(int rank, std::string message) = 0;
  // Whether a message is not sent yet.
  virtual bool sending() const = 0;
  // Takes a message that has arrived, and says whose; `*received` is false if there is none.
  virtual Status Receive(int* rank, std::string* message, bool* received) = 0;
  // As those of Transport.
  virtual Status Progress() = 0;
  virtual bool Abort() = 0;
};

}  // namespace hvd_p3

#endif  // HVD_P3_TRANSPORT_TRANSPORT_H_
