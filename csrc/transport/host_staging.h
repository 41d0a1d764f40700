// Presents a slice in host memory to a collective that works in place as one contiguous buffer. For
// a slice of one segment that is its output, into which the gradient is copied if it is not there
// already; fused and very short slices have a buffer of their own. Used by the engine thread.
#ifndef HVD_P3_TRANSPORT_HOST_STAGING_H_
#define HVD_P3_TRANSPORT_HOST_STAGING_H_

#include <cstdint>
#include <memory>

#include "transport/transport.h"

namespace hvd_p3 {

class HostStaging {
 public:
  // A slice of fewer than `least_count` elements is filled up with zeros to that many.
  explicit HostStaging(SliceReduction reduction, int64_t least_count = 1);

  // This rank's elements, which the sum replaces.
  void* buffer() const { return buffer_; }
  int64_t count() const { return count_; }
  int64_t bytes() const { return count_ * ElementBytes(reduction_.dtype); }
  DataType dtype() const { return reduction_.dtype; }

  // Call once the buffer holds the sum: applies the postscale and fills the outputs.
  void Finish();

 private:
  const SliceReduction reduction_;
  int64_t count_ = 0;
  std::unique_ptr<char[]> packed_;  // null: the buffer is the output
  void* buffer_ = nullptr;
};

}  // namespace hvd_p3

#endif  // HVD_P3_TRANSPORT_HOST_STAGING_H_
