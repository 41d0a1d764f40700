// What one rank says in a negotiation round: flags, the slices that it has finished, whether it
// ends, and the tensors that are ready on it. The ranks' words are combined by a bitwise AND, so a
// bit that is set afterwards was set on all ranks. Used by the engine thread.
#ifndef HVD_P3_CORE_ROUND_WORDS_H_
#define HVD_P3_CORE_ROUND_WORDS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hvd_p3 {

// Raised by one rank, a flag is seen by all: it is sent as a cleared bit.
enum RoundFlag : uint64_t {
  kExchangeWanted = 1,
  kStop = 2,        // this rank shuts down and has nothing unfinished, or gives up
  kMoreToCome = 4,  // this rank may yet offer a tensor that it does not offer now
};

// Where the buffers of a tensor are on all ranks. kMixed: in device memory on some and in host
// memory on others.
enum class Memory { kHost, kDevice, kMixed };

class RoundWords {
 public:
  // Without `device_memory` all tensors are in host memory, and rounds are shorter.
  RoundWords(int ranks, bool device_memory)
      : ranks_(ranks),
        header_words_(kRanks + (static_cast<size_t>(ranks) + 63) / 64),
        sections_(device_memory ? 3 : 1) {}

  // Starts the words of a round: no flag, nothing finished, nothing ready.
  void Reset(int64_t num_tensors);
  void RaiseFlags(uint64_t flags) { words_[kFlags] &= ~flags; }
  void SetFinished(uint64_t slots) { words_[kFinished] = slots; }
  // This rank shuts down. Inverted, as the flags are.
  void SetEnding(int rank) {
    words_[kRanks + static_cast<size_t>(rank / 64)] &= ~(uint64_t{1} << (rank % 64));
  }
  // `id`: agreed by all ranks, below `num_tensors`.
  void AddReady(int64_t id, bool on_device);

  // To be combined with those of the other ranks, in place. Stays where it is until Reset.
  std::vector<uint64_t>* words() { return &words_; }

  // Of the combined words:
  uint64_t flags() const { return ~words_[kFlags]; }
  uint64_t finished() const { return words_[kFinished]; }
  // The ranks that shut down, in order.
  std::vector<int> ending() const;
  struct Ready {
    int64_t id = 0;
    Memory memory = Memory::kHost;
  };
  // The tensors that are ready on all ranks, by id.
  std::vector<Ready> ready() const;

 private:
  // The header: flags, finished slots, and a bit for each rank.
  enum : size_t { kFlags, kFinished, kRanks };

  uint64_t& Word(size_t section, int64_t id) {
    return words_[header_words_ + section * section_words_ + static_cast<size_t>(id / 64)];
  }

  // Behind the header: one bit a tensor for "ready", and with device memory also for "ready in host
  // memory" and "ready in device memory". If neither is left of a tensor that is ready everywhere,
  // ranks differ.
  const int ranks_;
  const size_t header_words_;
  const size_t sections_;
  size_t section_words_ = 0;
  std::vector<uint64_t> words_;
};

}  // namespace hvd_p3

#endif  // HVD_P3_CORE_ROUND_WORDS_H_
