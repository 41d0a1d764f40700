#include "transport/host_staging.h"

#include <algorithm>
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

HostStaging::HostStaging(SliceReduction reduction, int64_t least_count)
    : reduction_(std::move(reduction)) {
  const DataType dtype = reduction_.dtype;
  int64_t elements = 0;
  for (const Segment& segment : reduction_.segments) elements += segment.count;
  count_ = std::max(elements, least_count);
  if (reduction_.segments.size() == 1 && count_ == elements) {
    buffer_ = reduction_.segments.front().output;
  } else {
    // Not value-initialised: every byte is written below.
    packed_.reset(new char[static_cast<size_t>(bytes())]);
    buffer_ = packed_.get();
  }
  char* position = static_cast<char*>(buffer_);
  for (const Segment& segment : reduction_.segments) {
    CopyScaled(dtype, segment.input, position, segment.count, reduction_.prescale);
    position += segment.count * ElementBytes(dtype);
  }
  std::fill(position, static_cast<char*>(buffer_) + bytes(), '\0');
}

void HostStaging::Finish() {
  const char* position = static_cast<const char*>(buffer_);
  for (const Segment& segment : reduction_.segments) {
    CopyScaled(reduction_.dtype, position, segment.output, segment.count, reduction_.postscale);
    position += segment.count * ElementBytes(reduction_.dtype);
  }
}

}  // namespace hvd_p3
