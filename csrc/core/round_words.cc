#include "core/round_words.h"

namespace hvd_p3 {
namespace {

constexpr size_t kReady = 0;
constexpr size_t kReadyOnHost = 1;
constexpr size_t kReadyOnDevice = 2;

}  // namespace

void RoundWords::Reset(int64_t num_tensors) {
  section_words_ = static_cast<size_t>((num_tensors + 63) / 64);
  words_.assign(header_words_ + sections_ * section_words_, 0);
  words_[kFlags] = ~uint64_t{0};
  for (size_t word = kRanks; word < header_words_; ++word) words_[word] = ~uint64_t{0};
}

std::vector<int> RoundWords::ending() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < ranks_; ++rank) {
    const uint64_t word = words_[kRanks + static_cast<size_t>(rank / 64)];
    if ((word >> (rank % 64) & 1) == 0) ranks.push_back(rank);
  }
  return ranks;
}

void RoundWords::AddReady(int64_t id, bool on_device) {
  const uint64_t bit = uint64_t{1} << (id % 64);
  Word(kReady, id) |= bit;
  if (sections_ > 1) Word(on_device ? kReadyOnDevice : kReadyOnHost, id) |= bit;
}

std::vector<RoundWords::Ready> RoundWords::ready() const {
  std::vector<Ready> tensors;
  const uint64_t* const sections = words_.data() + header_words_;
  for (size_t word = 0; word < section_words_; ++word) {
    for (uint64_t bits = sections[word]; bits != 0; bits &= bits - 1) {
      const int bit = __builtin_ctzll(bits);
      const auto is_set = [&](size_t section) {
        return (sections[section * section_words_ + word] >> bit & 1) != 0;
      };
      Memory memory = Memory::kHost;
      if (sections_ > 1 && !is_set(kReadyOnHost)) {
        memory = is_set(kReadyOnDevice) ? Memory::kDevice : Memory::kMixed;
      }
      tensors.push_back({static_cast<int64_t>(64 * word) + bit, memory});
    }
  }
  return tensors;
}

}  // namespace hvd_p3
