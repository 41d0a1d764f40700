// Gives every tensor an id that is the same on all ranks. Ranks exchange what they have declared;
// a group is agreed in the exchange in which its last rank appears. The result depends only on the
// sequence of exchanges, so all ranks number alike. Used by the engine thread alone.
#ifndef HVD_P3_CORE_AGREEMENT_H_
#define HVD_P3_CORE_AGREEMENT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/group.h"
#include "core/settings.h"

namespace hvd_p3 {

class Agreement {
 public:
  Agreement(int size, const EngineSettings& settings) : size_(size), settings_(settings) {}

  // Adds a group that this rank has declared; the engine owns it and outlives this object.
  void Add(Group* group) {
    unsent_.push_back(group);
    if (group->tensors.empty()) ++announced_;
  }

  // Rank 0 asks for other settings. A later call replaces one that is not sent yet.
  void Propose(const EngineSettings& settings) { unsent_settings_ = settings; }
  bool has_unsent_settings() const { return unsent_settings_.has_value(); }

  // Whether a group without tensors is not compared yet; whether one is not even sent.
  bool has_announced() const { return announced_ > 0; }
  bool has_unsent_announcement() const;

  // This rank's part of an exchange: what it has proposed and all that it has declared since the
  // last one.
  std::string TakeUnsent();

  // Merges what every rank sent. Fills in agreed ids or failures, and appends the groups that got
  // one or the other to `*settled`, in the same order on all ranks.
  Status Merge(const std::vector<std::string>& by_rank, std::vector<Group*>* settled);

  // Whether ranks have agreed on any group.
  bool has_agreed() const { return !agreed_.empty(); }

  // Rank 0 has proposed settings that are not adopted yet.
  bool has_proposal() const { return proposal_.has_value(); }
  // Adopts them and plans all groups anew. Only while nothing is ready or in flight on any rank,
  // and at the same point of the sequence of rounds on all.
  void AdoptProposal();
  const EngineSettings& settings() const { return settings_; }

  // Number of agreed tensors; their ids are 0 .. count - 1.
  int64_t num_tensors() const { return static_cast<int64_t>(tensors_.size()); }
  Tensor* tensor(int64_t agreed_id) const { return tensors_[static_cast<size_t>(agreed_id)]; }

 private:
  struct Partial {
    std::map<int, GroupDeclaration> by_rank;
  };

  void Settle(Group* group, const Partial& partial);

  const int size_;
  EngineSettings settings_;
  std::optional<EngineSettings> unsent_settings_;
  std::optional<EngineSettings> proposal_;  // received, not adopted yet
  std::vector<Group*> unsent_;
  int announced_ = 0;
  std::map<std::string, Group*> local_;
  std::map<std::string, Partial> partial_;
  std::vector<Group*> agreed_;
  std::vector<Tensor*> tensors_;
};

}  // namespace hvd_p3

#endif  // HVD_P3_CORE_AGREEMENT_H_
