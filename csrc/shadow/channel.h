// A channel between the ranks for what goes on in the background of training: messages between two
// ranks, and sums over all. Apart from everything else that ranks say to each other.
//
// Any thread may call, several at the same time; see each function. Nothing waits without a time
// limit or past Close(). Implemented over MPI, and between threads of one process.
#ifndef HVD_P3_SHADOW_CHANNEL_H_
#define HVD_P3_SHADOW_CHANNEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/status.h"
#include "core/types.h"

namespace hvd_p3 {

struct ChannelMessage {
  int from = 0;
  int tag = 0;
  std::vector<char> bytes;
};

class Channel {
 public:
  static constexpr int kAny = -1;             // any rank, any tag
  static constexpr int kGreatestTag = 32766;  // MPI guarantees one more, which sums use

  explicit Channel(std::string name) : name_(std::move(name)) {}
  virtual ~Channel() = default;
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  const std::string& name() const { return name_; }
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Sends a copy of the bytes and returns at once. Messages from one rank to another with one tag
  // arrive in the order in which they were sent. A rank may send to itself.
  virtual Status Send(int to, int tag, const void* data, size_t bytes) = 0;

  // Waits until all that was sent is under way, so that its memory is free. kTimedOut after
  // `timeout_s` seconds.
  virtual Status Flush(double timeout_s) = 0;

  // Waits for a message of rank `from` with `tag`; kAny matches all. Each message goes to one
  // thread. kTimedOut after `timeout_s` seconds; 0 only looks, and less than 0 waits until Close().
  virtual Status Receive(int from, int tag, double timeout_s, ChannelMessage* message) = 0;

  // Replaces the elements of `data` by their sums over `members`, which must name this rank and be
  // the same on all of them, in ascending order. All members make the same calls in the same order,
  // one at a time. float32 and float64 only.
  //
  // Travels in pieces of `slice_bytes`. On an error, `data` holds sums in some places. After
  // kTimedOut the members are out of step, and no further sum over these members is possible in
  // this `generation`, a number from 0 that is the same on all of them. Once all have agreed on a
  // number that none has used, they are in step again.
  virtual Status AllReduce(void* data, int64_t count, DataType dtype,
                           const std::vector<int>& members, int64_t generation, int64_t slice_bytes,
                           double timeout_s) = 0;

  // All calls that wait, and later ones, return kShutdown. When it returns, no thread is inside of
  // MPI for this channel, nor will be.
  virtual void Close() = 0;

 protected:
  Status CheckRankAndTag(int rank, int tag, bool any) const;
  Status Closed() const;
  Status TimedOut(const std::string& what, double timeout_s) const;
  Status CheckAllReduce(int64_t count, DataType dtype, const std::vector<int>& members,
                        int64_t generation, int64_t slice_bytes) const;
  Status GivenUp(const std::vector<int>& members) const;

 private:
  const std::string name_;
};

}  // namespace hvd_p3

#endif  // HVD_P3_SHADOW_CHANNEL_H_
