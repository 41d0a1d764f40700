// Presents a slice in host memory to a collective as one contiguous send and one receive buffer.
// A slice of one segment is reduced straight from the gradient into its output; only fused slices
// and prescaled ones are copied. Used by the engine thread.
#ifndef HVD_P3_TRANSPORT_HOST_STAGING_H_
#define HVD_P3_TRANSPORT_HOST_STAGING_H_

#include <cstdint>
#include <memory>

#include "transport/transport.h"

namespace hvd_p3 {

class HostStaging {
 public:
  explicit HostStaging(SliceReduction reduction);

  // nullptr when the send data is already in the receive buffer (MPI_IN_PLACE).
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
  std::unique_ptr<char[]> staging_;
  const void* send_ = nullptr;
  void* receive_ = nullptr;
};

}  // namespace hvd_p3

#endif  // HVD_P3_TRANSPORT_HOST_STAGING_H_
