#include "values.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "core/element.h"

namespace hvd_p3 {

std::vector<char> RandomBits(DataType dtype, int64_t count, uint64_t seed) {
  std::vector<char> bytes(static_cast<size_t>(count * ElementBytes(dtype)));
  std::mt19937_64 random(seed);
  size_t position = 0;
  while (position < bytes.size()) {
    const uint64_t bits = random();
    const size_t length = std::min(sizeof(bits), bytes.size() - position);
    std::memcpy(bytes.data() + position, &bits, length);
    position += length;
  }
  return bytes;
}

int64_t CountDifferent(DataType dtype, const std::vector<char>& a, const std::vector<char>& b) {
  return WithCodec(dtype, [&](auto codec) {
    using Codec = decltype(codec);
    using Stored = typename Codec::Stored;
    int64_t different = a.size() == b.size() ? 0 : 1;
    for (size_t at = 0; at + sizeof(Stored) <= std::min(a.size(), b.size()); at += sizeof(Stored)) {
      if (std::memcmp(a.data() + at, b.data() + at, sizeof(Stored)) == 0) continue;
      Stored one;
      Stored other;
      std::memcpy(&one, a.data() + at, sizeof(Stored));
      std::memcpy(&other, b.data() + at, sizeof(Stored));
      const auto is_nan = [](auto value) { return value != value; };
      if (!is_nan(Codec::Load(one)) || !is_nan(Codec::Load(other))) ++different;
    }
    return different;
  });
}

}  // namespace hvd_p3
