// Value types that every part of the engine shares: element types, reduction operations and
// devices. Plain data without ownership; any thread may use them.
#ifndef HVD_P3_CORE_TYPES_H_
#define HVD_P3_CORE_TYPES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace hvd_p3 {

enum class DataType : int8_t { kFloat16, kBFloat16, kFloat32, kFloat64, kInt32, kInt64 };

// kAverage is kSum followed by a division by the number of ranks.
enum class ReduceOp : int8_t { kSum, kAverage };

// Size of one element in bytes.
int64_t ElementBytes(DataType dtype);

// The NumPy spelling, for example "float32".
const char* DataTypeName(DataType dtype);
std::optional<DataType> DataTypeFromName(const std::string& name);

const char* ReduceOpName(ReduceOp op);

// Where a buffer lives: the host, or the accelerator with this index.
struct Device {
  static constexpr int kHost = -1;
  int index = kHost;
  bool is_host() const { return index == kHost; }
};

// What all ranks must agree on before a tensor can be reduced.
struct TensorSpec {
  std::string name;
  DataType dtype = DataType::kFloat32;
  std::vector<int64_t> shape;
  // Position of the tensor's first use in the forward pass; 0 is the most urgent.
  int64_t priority = 0;
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;

  int64_t num_elements() const;
  int64_t bytes() const { return num_elements() * ElementBytes(dtype); }
};

// For example "float32[3,4], sum", with scales other than 1: what an error message shows of a spec.
std::string Describe(const TensorSpec& spec);

}  // namespace hvd_p3

#endif  // HVD_P3_CORE_TYPES_H_
