#include <cstring>
#include <string>
#include <vector>

#include "checks.h"
#include "core/arithmetic.h"
#include "device.h"
#include "device/cuda_scale.h"
#include "values.h"

namespace hvd_p3 {
namespace {

// More than one launch takes, of many lengths, and some that are empty.
std::vector<int64_t> Lengths() {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 100; ++i) lengths.push_back(i % 9 == 0 ? 0 : 1 + i * i * 7);
  lengths.push_back(1 << 20);
  return lengths;
}

int64_t CountDifferentAfterScale(DataType dtype, double factor, bool in_place) {
  const ComputeStream stream;
  int64_t count = 0;
  for (const int64_t length : Lengths()) count += length;
  const std::vector<char> host = RandomBits(dtype, count, 17);
  const DeviceMemory input(host);
  const DeviceMemory separate(host.size());
  const DeviceMemory& output = in_place ? input : separate;
  std::vector<Segment> segments;
  int64_t offset = 0;
  for (const int64_t length : Lengths()) {
    segments.push_back({input.data() + offset, output.data() + offset, length});
    offset += length * ElementBytes(dtype);
  }
  Must(CudaScale(segments, dtype, factor, stream.get()));
  stream.Synchronize();
  std::vector<char> expected(host.size());
  Scale(dtype, host.data(), expected.data(), count, factor);
  return CountDifferent(dtype, output.ToHost(), expected);
}

}  // namespace

void CheckScale(Report* report) {
  for (const DataType dtype : kAllTypes) {
    int64_t different = 0;
    int factors = 0;
    for (const double factor :
         {1.0 / 3, 0.5, 1.0 / 7, 3.0, -1.0, 0.0, 1e-30, 1e30, 1e-42, 65536.0, 1e300}) {
      different += CountDifferentAfterScale(dtype, factor, false);
      different += CountDifferentAfterScale(dtype, factor, true);
      ++factors;
    }
    report->Check(std::string("scaling of ") + DataTypeName(dtype) + " gives the host's bits",
                  different == 0,
                  std::to_string(different) + " elements differ, with " + std::to_string(factors) +
                      " factors");
  }
}

}  // namespace hvd_p3
