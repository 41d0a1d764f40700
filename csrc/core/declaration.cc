#include "core/declaration.h"

#include <algorithm>
#include <functional>
#include <map>
#include <sstream>

#include "core/rank_list.h"
#include "core/wire.h"

namespace hvd_p3 {
namespace {

constexpr uint32_t kWireVersion = 2;

void EncodeTensor(const TensorSpec& tensor, Writer* writer) {
  writer->Text(tensor.name);
  writer->Number(tensor.dtype);
  writer->Number<uint64_t>(tensor.shape.size());
  for (int64_t dimension : tensor.shape) writer->Number(dimension);
  writer->Number(tensor.priority);
  writer->Number(tensor.op);
  writer->Number(tensor.prescale);
  writer->Number(tensor.postscale);
}

TensorSpec DecodeTensor(Reader* reader) {
  TensorSpec tensor;
  tensor.name = reader->Text();
  tensor.dtype = reader->Number<DataType>();
  const uint64_t rank = reader->Number<uint64_t>();
  for (uint64_t i = 0; i < rank && reader->ok(); ++i) {
    tensor.shape.push_back(reader->Number<int64_t>());
  }
  tensor.priority = reader->Number<int64_t>();
  tensor.op = reader->Number<ReduceOp>();
  tensor.prescale = reader->Number<double>();
  tensor.postscale = reader->Number<double>();
  return tensor;
}

// "float32[2] on ranks 0, 2; float32[3] on rank 1", from what each rank has.
std::string ByRank(const std::vector<std::string>& values) {
  std::vector<std::string> order;
  std::map<std::string, std::vector<int>> ranks;
  for (size_t rank = 0; rank < values.size(); ++rank) {
    if (ranks[values[rank]].empty()) order.push_back(values[rank]);
    ranks[values[rank]].push_back(static_cast<int>(rank));
  }
  std::ostringstream text;
  for (size_t i = 0; i < order.size(); ++i) {
    text << (i ? "; " : "") << order[i] << " on " << RankList(ranks[order[i]]);
  }
  return text.str();
}

// Describes one property of every rank's declaration; an error if they are not all equal.
Status RequireEqual(const std::vector<GroupDeclaration>& by_rank, const std::string& what,
                    const std::string& remedy,
                    const std::function<std::string(const GroupDeclaration&)>& property) {
  std::vector<std::string> values;
  for (const GroupDeclaration& declaration : by_rank) values.push_back(property(declaration));
  if (std::all_of(values.begin(), values.end(),
                  [&](const std::string& value) { return value == values.front(); })) {
    return {};
  }
  return {StatusCode::kMismatch,
          "ranks disagree about " + what + ": " + ByRank(values) + ". " + remedy};
}

}  // namespace

std::string EncodeDeclarations(const std::vector<GroupDeclaration>& declarations) {
  Writer writer;
  writer.Number(kWireVersion);
  writer.Number<uint64_t>(declarations.size());
  for (const GroupDeclaration& declaration : declarations) {
    writer.Text(declaration.name);
    writer.Text(declaration.arguments);
    writer.Number(declaration.slice_bytes);
    writer.Number(declaration.credit_bytes);
    writer.Number<uint64_t>(declaration.tensors.size());
    for (const TensorSpec& tensor : declaration.tensors) EncodeTensor(tensor, &writer);
  }
  return writer.Take();
}

Status DecodeDeclarations(const std::string& bytes, std::vector<GroupDeclaration>* declarations) {
  const Status malformed(StatusCode::kMismatch,
                         "a rank sent a tensor declaration that this hvd_p3 cannot read; install "
                         "the same version of hvd_p3 on all hosts");
  Reader reader(bytes);
  if (reader.Number<uint32_t>() != kWireVersion) return malformed;
  const uint64_t groups = reader.Number<uint64_t>();
  for (uint64_t i = 0; i < groups && reader.ok(); ++i) {
    GroupDeclaration declaration;
    declaration.name = reader.Text();
    declaration.arguments = reader.Text();
    declaration.slice_bytes = reader.Number<int64_t>();
    declaration.credit_bytes = reader.Number<int64_t>();
    const uint64_t tensors = reader.Number<uint64_t>();
    for (uint64_t j = 0; j < tensors && reader.ok(); ++j) {
      declaration.tensors.push_back(DecodeTensor(&reader));
    }
    declarations->push_back(std::move(declaration));
  }
  return reader.ok() ? Status() : malformed;
}

Status CompareDeclarations(const std::vector<GroupDeclaration>& by_rank) {
  const std::string same_settings = "Launch all ranks with the same setting.";
  Status status = RequireEqual(by_rank, "HVD_P3_SLICE_BYTES", same_settings,
                               [](const auto& group) { return std::to_string(group.slice_bytes); });
  if (!status.ok()) return status;
  status = RequireEqual(by_rank, "HVD_P3_CREDIT_BYTES", same_settings,
                        [](const auto& group) { return std::to_string(group.credit_bytes); });
  if (!status.ok()) return status;

  status = RequireEqual(by_rank, "the arguments of '" + by_rank.front().name + "'",
                        "Give the optimizer or tape the same arguments on all ranks.",
                        [](const auto& group) { return group.arguments; });
  if (!status.ok()) return status;

  const std::string same_program =
      "Every rank must reduce the same tensors: build the same model on all ranks.";
  const std::string in_group = " of '" + by_rank.front().name + "'";
  status = RequireEqual(
      by_rank, "the number of tensors" + in_group, same_program,
      [](const auto& group) { return std::to_string(group.tensors.size()) + " tensors"; });
  if (!status.ok()) return status;
  for (size_t i = 0; i < by_rank.front().tensors.size(); ++i) {
    status =
        RequireEqual(by_rank, "the name of tensor " + std::to_string(i) + in_group, same_program,
                     [&](const auto& group) { return "'" + group.tensors[i].name + "'"; });
    if (!status.ok()) return status;
    status =
        RequireEqual(by_rank, "tensor '" + by_rank.front().tensors[i].name + "'" + in_group,
                     same_program, [&](const auto& group) { return Describe(group.tensors[i]); });
    if (!status.ok()) return status;
  }
  return {};
}

Status CompareWithEarlier(const GroupDeclaration& earlier, const GroupDeclaration& now) {
  const auto refuse = [&](const std::string& before, const std::string& after) {
    return Status(StatusCode::kInvalidArgument, "the name '" + now.name + "' stood for " + before +
                                                    " before and now for " + after +
                                                    "; give every tensor a name of its own");
  };
  if (earlier.tensors.size() != now.tensors.size()) {
    return refuse(std::to_string(earlier.tensors.size()) + " tensors",
                  std::to_string(now.tensors.size()));
  }
  for (size_t i = 0; i < now.tensors.size(); ++i) {
    const std::string before = "'" + earlier.tensors[i].name + "' " + Describe(earlier.tensors[i]);
    const std::string after = "'" + now.tensors[i].name + "' " + Describe(now.tensors[i]);
    if (before != after) return refuse(before, after);
  }
  return {};
}

}  // namespace hvd_p3
