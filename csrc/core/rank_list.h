// Names ranks in messages. Any thread may call it.
#ifndef HVD_P3_CORE_RANK_LIST_H_
#define HVD_P3_CORE_RANK_LIST_H_

#include <algorithm>
#include <string>
#include <vector>

namespace hvd_p3 {

// "rank 3", "ranks 0, 2, 5", or "ranks 0, 1, … and 4088 others".
inline std::string RankList(const std::vector<int>& ranks) {
  constexpr size_t kMostNamed = 8;
  std::string text = ranks.size() > 1 ? "ranks " : "rank ";
  for (size_t i = 0; i < std::min(ranks.size(), kMostNamed); ++i) {
    text += (i ? ", " : "") + std::to_string(ranks[i]);
  }
  if (ranks.size() > kMostNamed) {
    text += " and " + std::to_string(ranks.size() - kMostNamed) + " others";
  }
  return text;
}

}  // namespace hvd_p3

#endif  // HVD_P3_CORE_RANK_LIST_H_
