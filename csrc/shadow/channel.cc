#include "shadow/channel.h"

#include <algorithm>
#include <sstream>

#include "core/rank_list.h"

namespace hvd_p3 {

Status Channel::CheckRankAndTag(int rank, int tag, bool any) const {
  if ((rank < 0 || rank >= size()) && !(any && rank == kAny)) {
    return {StatusCode::kInvalidArgument, "channel '" + name_ + "' has ranks 0 to " +
                                              std::to_string(size() - 1) + ", received rank " +
                                              std::to_string(rank)};
  }
  if ((tag < 0 || tag > kGreatestTag) && !(any && tag == kAny)) {
    return {StatusCode::kInvalidArgument, "tags of channel '" + name_ + "' go from 0 to " +
                                              std::to_string(kGreatestTag) + ", received tag " +
                                              std::to_string(tag)};
  }
  return {};
}

Status Channel::Closed() const {
  return {StatusCode::kShutdown, "channel '" + name_ + "' is closed on this rank"};
}

Status Channel::TimedOut(const std::string& what, double timeout_s) const {
  std::ostringstream text;
  text << "on channel '" << name_ << "' " << what << " within " << timeout_s << " s";
  return {StatusCode::kTimedOut, text.str()};
}

Status Channel::CheckAllReduce(int64_t count, DataType dtype, const std::vector<int>& members,
                               int64_t generation, int64_t slice_bytes) const {
  const auto invalid = [this](const std::string& what) -> Status {
    return {StatusCode::kInvalidArgument, "all_reduce on channel '" + name() + "' " + what};
  };
  if (dtype != DataType::kFloat32 && dtype != DataType::kFloat64) {
    return invalid(std::string("sums float32 or float64, received ") + DataTypeName(dtype));
  }
  if (count < 0) return invalid("needs a count of at least 0");
  if (generation < 0) {
    return invalid("needs a generation of at least 0, received " + std::to_string(generation));
  }
  if (slice_bytes < ElementBytes(dtype)) {
    return invalid("needs slice_bytes of at least one element, received " +
                   std::to_string(slice_bytes));
  }
  bool valid = std::is_sorted(members.begin(), members.end()) &&
               std::adjacent_find(members.begin(), members.end()) == members.end() &&
               std::find(members.begin(), members.end(), rank()) != members.end();
  for (const int member : members) valid = valid && member >= 0 && member < size();
  if (!valid) {
    return invalid("needs ranks from 0 to " + std::to_string(size() - 1) +
                   " in ascending order that include this one, " + std::to_string(rank()));
  }
  return {};
}

Status Channel::GivenUp(const std::vector<int>& members) const {
  return {StatusCode::kTransport, "all_reduce on channel '" + name() + "' among " +
                                      RankList(members) +
                                      " is no longer possible: an earlier one was given up"};
}

}  // namespace hvd_p3
