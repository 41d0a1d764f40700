// How ranks agree about a group of tensors. Each rank sends what it declares; Merge compares what
// all ranks have declared of one group so far. Pure functions and values; any thread may use them.
#ifndef HVD_P3_CORE_DECLARATION_H_
#define HVD_P3_CORE_DECLARATION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/status.h"
#include "core/types.h"

namespace hvd_p3 {

// A named list of tensors that is sliced and fused together. All ranks must declare the same.
struct GroupDeclaration {
  std::string name;
  std::vector<TensorSpec> tensors;
  std::string arguments;    // how the program asked for it, as text; part of what ranks compare
  int64_t slice_bytes = 0;  // the declaring rank's setting
  int64_t credit_bytes = 0;
};

// Bytes of a list of declarations for the wire, and back. Decode returns an error for bytes that
// Encode of this version did not make.
std::string EncodeDeclarations(const std::vector<GroupDeclaration>& declarations);
Status DecodeDeclarations(const std::string& bytes, std::vector<GroupDeclaration>* declarations);

// OK if all ranks declared the same group (priorities may differ; rank 0's count). Otherwise a
// kMismatch that names the first tensor or setting that differs and what each rank has.
// `by_rank[r]` is rank r's declaration.
Status CompareDeclarations(const std::vector<GroupDeclaration>& by_rank);

// OK if a rank declares again what it has declared before, apart from priorities, which keep their
// first values. Otherwise a kInvalidArgument that names the group and the difference.
Status CompareWithEarlier(const GroupDeclaration& earlier, const GroupDeclaration& now);

}  // namespace hvd_p3

#endif  // HVD_P3_CORE_DECLARATION_H_
