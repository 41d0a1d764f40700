// A sum over some ranks by messages between two of them: a ring, in which each rank talks to the
// next one only. Unlike a communicator of these ranks, it takes no call that waits without a limit,
// so that it is safe when any of them may be dead. One object for each sum, used by one thread.
#ifndef HVD_P3_SHADOW_MESSAGE_SUM_H_
#define HVD_P3_SHADOW_MESSAGE_SUM_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "core/status.h"
#include "core/types.h"

namespace hvd_p3 {

// Tells the messages of one sum from those that earlier ones have left behind.
struct SumIdentity {
  int64_t generation = 0;
  int64_t members = 0;  // the same number for the same members
  int64_t number = 0;   // of the sums of this generation and these members

  bool operator==(const SumIdentity& other) const {
    return generation == other.generation && members == other.members && number == other.number;
  }
};

class MessageSum {
 public:
  // Sends a copy of the bytes and returns at once.
  using Send = std::function<Status(int to, const std::vector<char>& bytes)>;
  // The next message of a rank, in the order of sending. kTimedOut after `timeout_s` seconds.
  using Receive = std::function<Status(int from, double timeout_s, std::vector<char>* bytes)>;

  // `members` in ascending order, with `rank` among them.
  MessageSum(const std::vector<int>& members, int rank, const SumIdentity& identity, Send send,
             Receive receive, double timeout_s);

  // Replaces the elements by their sums over the members, with the same bits on all of them;
  // float32 or float64. Messages have up to `slice_bytes` and a header. kTimedOut if the whole
  // takes longer than the time limit; kMismatch if the ranks give different lengths.
  Status Run(void* data, int64_t count, DataType dtype, int64_t slice_bytes);

 private:
  template <typename T>
  Status RunBlock(T* data, int64_t count);
  Status SendPart(const void* data, size_t bytes);
  // The bytes of the rank before this one; `bytes` long.
  Status ReceivePart(size_t bytes, const char** data);

  const std::vector<int> members_;
  const int64_t place_;  // of this rank among the members
  const SumIdentity identity_;
  const Send send_;
  const Receive receive_;
  const int64_t end_ns_;
  std::vector<char> message_;  // the last one that was received
};

}  // namespace hvd_p3

#endif  // HVD_P3_SHADOW_MESSAGE_SUM_H_
