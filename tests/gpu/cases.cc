#include "cases.h"

#include <cstdio>

#include "core/arithmetic.h"
#include "values.h"

namespace hvd_p3 {

std::string Milliseconds(int64_t nanoseconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3f ms", 1e-6 * static_cast<double>(nanoseconds));
  return text;
}

Case MakeCase(const std::string& name, DataType dtype, int64_t count, int64_t priority) {
  Case made;
  made.spec.name = name;
  made.spec.dtype = dtype;
  made.spec.shape = {count};
  made.spec.priority = priority;
  made.host = RandomBits(dtype, count, static_cast<uint64_t>(count + priority));
  made.input = std::make_unique<DeviceMemory>(made.host);
  made.output = std::make_unique<DeviceMemory>(made.host.size());
  return made;
}

std::vector<char> Expected(const Case& of) {
  std::vector<char> result = of.host;
  const int64_t count = of.spec.num_elements();
  for (const double factor : {of.spec.prescale, of.spec.postscale}) {
    if (factor != 1.0) Scale(of.spec.dtype, result.data(), result.data(), count, factor);
  }
  return result;
}

}  // namespace hvd_p3
