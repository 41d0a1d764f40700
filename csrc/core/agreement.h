// Gives every tensor an id that is the same on all ranks. Ranks exchange what they have declared;
// a group is agreed in the exchange in which its last rank appears. The result depends only on the
// sequence of exchanges, so all ranks number alike. Used by the engine thread alone.
#ifndef HVD_P3_CORE_AGREEMENT_H_
#define HVD_P3_CORE_AGREEMENT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/group.h"

namespace hvd_p3 {

class Agreement {
 public:
  explicit Agreement(int size) : size_(size) {}

  // Adds a group that this rank has declared; the engine owns it and outlives this object.
  void Add(Group* group) { unsent_.push_back(group); }

  // This rank's part of an exchange: all that it has declared since the last one.
  std::string TakeUnsent();

  // Merges what every rank sent. Fills in agreed ids or failures, and appends the groups that got
  // one or the other to `*settled`, in the same order on all ranks.
  Status Merge(const std::vector<std::string>& by_rank, std::vector<Group*>* settled);

  // Number of agreed tensors; their ids are 0 .. count - 1.
  int64_t num_tensors() const { return static_cast<int64_t>(tensors_.size()); }
  Tensor* tensor(int64_t agreed_id) const { return tensors_[static_cast<size_t>(agreed_id)]; }

 private:
  struct Partial {
    std::map<int, GroupDeclaration> by_rank;
  };

  void Settle(Group* group, const Partial& partial);

  const int size_;
  std::vector<Group*> unsent_;
  std::map<std::string, Group*> local_;
  std::map<std::string, Partial> partial_;
  std::vector<Tensor*> tensors_;
};

}  // namespace hvd_p3

#endif  // HVD_P3_CORE_AGREEMENT_H_
