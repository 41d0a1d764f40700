#include "core/types.h"

#include <array>
#include <sstream>

namespace hvd_p3 {
namespace {

struct DataTypeInfo {
  DataType dtype;
  int64_t bytes;
  const char* name;
};

constexpr std::array<DataTypeInfo, 6> kDataTypes = {{{DataType::kFloat16, 2, "float16"},
                                                     {DataType::kBFloat16, 2, "bfloat16"},
                                                     {DataType::kFloat32, 4, "float32"},
                                                     {DataType::kFloat64, 8, "float64"},
                                                     {DataType::kInt32, 4, "int32"},
                                                     {DataType::kInt64, 8, "int64"}}};

const DataTypeInfo& Info(DataType dtype) { return kDataTypes[static_cast<size_t>(dtype)]; }

}  // namespace

int64_t ElementBytes(DataType dtype) { return Info(dtype).bytes; }

const char* DataTypeName(DataType dtype) { return Info(dtype).name; }

std::optional<DataType> DataTypeFromName(const std::string& name) {
  for (const DataTypeInfo& info : kDataTypes) {
    if (name == info.name) return info.dtype;
  }
  return std::nullopt;
}

const char* ReduceOpName(ReduceOp op) { return op == ReduceOp::kSum ? "sum" : "average"; }

int64_t TensorSpec::num_elements() const {
  int64_t count = 1;
  for (int64_t dimension : shape) count *= dimension;
  return count;
}

std::string Describe(const TensorSpec& spec) {
  std::ostringstream text;
  text << DataTypeName(spec.dtype) << "[";
  for (size_t i = 0; i < spec.shape.size(); ++i) text << (i ? "," : "") << spec.shape[i];
  text << "], " << ReduceOpName(spec.op);
  if (spec.prescale != 1.0) text << ", prescale " << spec.prescale;
  if (spec.postscale != 1.0) text << ", postscale " << spec.postscale;
  return text.str();
}

}  // namespace hvd_p3
