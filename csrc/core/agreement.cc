#include "core/agreement.h"

#include <algorithm>
#include <utility>

namespace hvd_p3 {

bool Agreement::has_unsent_announcement() const {
  return std::any_of(unsent_.begin(), unsent_.end(),
                     [](const Group* group) { return group->tensors.empty(); });
}

std::string Agreement::TakeUnsent() {
  std::vector<GroupDeclaration> declarations;
  for (Group* group : unsent_) {
    declarations.push_back(group->declaration);
    group->sent = true;
    local_[group->declaration.name] = group;
  }
  unsent_.clear();
  const std::string settings = EncodeSettings(unsent_settings_);
  unsent_settings_.reset();
  return settings + EncodeDeclarations(declarations);
}

Status Agreement::Merge(const std::vector<std::string>& by_rank, std::vector<Group*>* settled) {
  for (int rank = 0; rank < size_; ++rank) {
    std::string sent = by_rank[static_cast<size_t>(rank)];
    const std::optional<EngineSettings> proposal = DecodeSettings(&sent);
    if (rank == 0 && proposal) proposal_ = proposal;
    std::vector<GroupDeclaration> declarations;
    const Status status = DecodeDeclarations(sent, &declarations);
    if (!status.ok()) return status;
    for (GroupDeclaration& declaration : declarations) {
      const std::string name = declaration.name;
      Partial& partial = partial_[name];
      partial.by_rank[rank] = std::move(declaration);
      if (static_cast<int>(partial.by_rank.size()) < size_) continue;
      Group* group = local_.at(name);
      Settle(group, partial);
      settled->push_back(group);
      partial_.erase(name);
    }
  }
  return {};
}

void Agreement::AdoptProposal() {
  settings_ = *proposal_;
  proposal_.reset();
  for (Group* group : agreed_) group->Plan(settings_.slice_bytes);
}

void Agreement::Settle(Group* group, const Partial& partial) {
  if (group->tensors.empty()) --announced_;
  std::vector<GroupDeclaration> by_rank;
  for (const auto& entry : partial.by_rank) by_rank.push_back(entry.second);
  group->failure = CompareDeclarations(by_rank);
  if (!group->failure.ok()) return;
  // Rank 0's priorities count, so that the plan of fused slices is the same everywhere.
  std::vector<TensorSpec>& mine = group->declaration.tensors;
  for (size_t i = 0; i < mine.size(); ++i) {
    mine[i].priority = by_rank.front().tensors[i].priority;
  }
  group->Plan(settings_.slice_bytes);
  agreed_.push_back(group);
  group->first_agreed_id = num_tensors();
  for (Tensor& tensor : group->tensors) tensors_.push_back(&tensor);
}

}  // namespace hvd_p3
