// Writes numbers and texts into bytes for another rank, and reads them back. All ranks of a job run
// the same program on the same kind of machine, so numbers travel as they are. Values; any thread.
#ifndef HVD_P3_CORE_WIRE_H_
#define HVD_P3_CORE_WIRE_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

namespace hvd_p3 {

class Writer {
 public:
  template <typename T>
  void Number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void Text(const std::string& text) {
    Number<uint64_t>(text.size());
    bytes_ += text;
  }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// After a read past the end every further read returns zero or nothing and ok() is false.
class Reader {
 public:
  explicit Reader(const std::string& bytes) : bytes_(bytes) {}

  bool ok() const { return ok_; }
  template <typename T>
  T Number() {
    T value{};
    if (!Has(sizeof(value))) return value;
    std::memcpy(&value, bytes_.data() + position_, sizeof(value));
    position_ += sizeof(value);
    return value;
  }
  std::string Text() {
    const uint64_t size = Number<uint64_t>();
    if (!Has(size)) return {};
    position_ += size;
    return bytes_.substr(position_ - size, size);
  }

 private:
  bool Has(uint64_t size) {
    ok_ = ok_ && size <= bytes_.size() - position_;
    return ok_;
  }

  const std::string& bytes_;
  size_t position_ = 0;
  bool ok_ = true;
};

}  // namespace hvd_p3

#endif  // HVD_P3_CORE_WIRE_H_
