// Presents a slice in host memory to a collective as one contiguous send and one receive buffer. A
// slice of one segment is reduced straight from the gradient into its output; only fused, prescaled
// and very short slices are copied. Used by the engine thread.
#ifndef HVD_P3_TRANSPORT_HOST_STAGING_H_
#define HVD_P3_TRANSPORT_HOST_STAGING_H_

#include <cstdint>
#include <memory>

#include "transport/transport.h"

namespace hvd_p3 {

// What a collective asks of its buffers.
struct StagingNeeds {
  int64_t least_count = 1;  // elements; a shorter slice is filled up with zeros
  bool may_share = false;   // the two buffers may be the same; otherwise they never overlap
};

class HostStaging {
 public:
  explicit HostStaging(SliceReduction reduction, const StagingNeeds& needs = {});

  const void* send() const { return send_; }
  void* receive() const { return receive_; }
  int64_t count() const { return count_; }
  int64_t bytes() const { return count_ * ElementBytes(reduction_.dtype); }
  DataType dtype() const { return reduction_.dtype; }

  // Call once the receive buffer holds the sum: applies the postscale and fills the outputs.
  void Finish();

 private:
  const SliceReduction reduction_;
  int64_t count_ = 0;
  std::unique_ptr<char[]> packed_;    // null: the input is sent as it is
  std::unique_ptr<char[]> received_;  // null: the output receives the sum
  const void* send_ = nullptr;
  void* receive_ = nullptr;
};

}  // namespace hvd_p3

#endif  // HVD_P3_TRANSPORT_HOST_STAGING_H_
