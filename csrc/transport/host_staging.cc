#include "transport/host_staging.h"

#include <cstring>
#include <utility>

#include "core/arithmetic.h"

namespace hvd_p3 {
namespace {

void CopyScaled(DataType dtype, const void* input, void* output, int64_t count, double factor) {
  if (factor != 1.0) {
    Scale(dtype, input, output, count, factor);
  } else if (input != output && count > 0) {
    std::memcpy(output, input, static_cast<size_t>(count * ElementBytes(dtype)));
  }
}

}  // namespace

HostStaging::HostStaging(SliceReduction reduction) : reduction_(std::move(reduction)) {
  const DataType dtype = reduction_.dtype;
  for (const Segment& segment : reduction_.segments) count_ += segment.count;
  if (reduction_.segments.size() == 1) {
    const Segment& only = reduction_.segments.front();
    receive_ = only.output;
    if (reduction_.prescale == 1.0) {
      send_ = only.input;
    } else {
      Scale(dtype, only.input, only.output, count_, reduction_.prescale);
    }
    return;
  }
  // Not value-initialised: every byte is written below.
  staging_.reset(new char[static_cast<size_t>(bytes())]);
  receive_ = staging_.get();
  char* position = staging_.get();
  for (const Segment& segment : reduction_.segments) {
    CopyScaled(dtype, segment.input, position, segment.count, reduction_.prescale);
    position += segment.count * ElementBytes(dtype);
  }
}

void HostStaging::Finish() {
  const char* position = static_cast<const char*>(receive_);
  for (const Segment& segment : reduction_.segments) {
    CopyScaled(reduction_.dtype, position, segment.output, segment.count, reduction_.postscale);
    position += segment.count * ElementBytes(reduction_.dtype);
  }
}

}  // namespace hvd_p3
