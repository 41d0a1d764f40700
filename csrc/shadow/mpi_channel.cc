#include "shadow/mpi_channel.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "shadow/back_off.h"
#include "shadow/message_sum.h"
#include "shadow/mpi_bytes.h"
#include "transport/mpi.h"

namespace hvd_p3 {
namespace {

// Before anybody has the channel, so that callers may use these too.
constexpr int kNameTag = 0;
constexpr int kSumTag = Channel::kGreatestTag + 1;

constexpr size_t kSlicesInFlight = 2;

// The open channels of this process.
std::mutex all_channels_mutex;
std::set<MpiChannel*>& AllChannels() {
  static std::set<MpiChannel*> channels;
  return channels;
}

int ToMpiRank(int rank) { return rank == Channel::kAny ? MPI_ANY_SOURCE : rank; }
int ToMpiTag(int tag) { return tag == Channel::kAny ? MPI_ANY_TAG : tag; }

}  // namespace

// --- Making and closing ----------------------------------------------------------

MpiChannel::MpiChannel(const std::string& name, std::unique_ptr<MpiCommunicator> communicator)
    : Channel(name), communicator_(std::move(communicator)) {
  const std::lock_guard<std::mutex> lock(all_channels_mutex);
  AllChannels().insert(this);
}

MpiChannel::~MpiChannel() {
  // Locks may be held by threads that a forked process does not have.
  if (getpid() != process_) return;
  {
    const std::lock_guard<std::mutex> lock(all_channels_mutex);
    AllChannels().erase(this);
  }
  Close();
  // MPI may still use what is under way. Elements of a list stay where they are when it is moved.
  if (!outgoing_.empty()) new std::list<Outgoing>(std::move(outgoing_));
  if (!arriving_.empty()) new std::list<Arriving>(std::move(arriving_));
}

Status MpiChannel::Make(const std::string& name, double timeout_s,
                        std::shared_ptr<MpiChannel>* made) {
  Status status = CheckMpi();
  if (!status.ok()) return status;
  std::unique_ptr<MpiCommunicator> communicator;
  BackOff back_off(timeout_s);
  bool in_time = true;
  status = MpiCommunicator::Duplicate([&] { return in_time = back_off.Wait(); }, &communicator);
  if (!in_time) {
    return {StatusCode::kTimedOut, "not all ranks opened channel '" + name + "' within " +
                                       std::to_string(timeout_s) + " s"};
  }
  if (!status.ok()) return status;
  std::shared_ptr<MpiChannel> channel(new MpiChannel(name, std::move(communicator)));
  status = channel->CheckSameName(timeout_s);
  if (status.ok()) *made = std::move(channel);
  return status;
}

// Each rank tells its name to all; names are short and channels are few.
Status MpiChannel::CheckSameName(double timeout_s) {
  for (int peer = 0; peer < size(); ++peer) {
    const Status status = Send(peer, kNameTag, name().data(), name().size());
    if (!status.ok()) return status;
  }
  Status mismatch;
  for (int peer = 0; peer < size(); ++peer) {
    ChannelMessage message;
    const Status status = Receive(peer, kNameTag, timeout_s, &message);
    if (!status.ok()) return status;
    const std::string theirs(message.bytes.begin(), message.bytes.end());
    if (theirs != name() && mismatch.ok()) {
      mismatch = {StatusCode::kMismatch, "ranks open channels in different order: '" + name() +
                                             "' on rank " + std::to_string(rank()) + ", '" +
                                             theirs + "' on rank " + std::to_string(peer) +
                                             ". Start the same things in the same order on all "
                                             "ranks"};
    }
  }
  return mismatch;
}

void MpiChannel::Close() {
  const std::unique_lock<std::shared_mutex> lock(in_mpi_);
  closed_ = true;
}

void MpiChannel::CloseAll() {
  const std::lock_guard<std::mutex> lock(all_channels_mutex);
  for (MpiChannel* const channel : AllChannels()) channel->Close();
}

template <typename Function>
Status MpiChannel::InMpi(const Function& function) {
  if (getpid() != process_) {
    return {StatusCode::kInvalidArgument,
            "channel '" + name() + "' belongs to the process from which this one was forked"};
  }
  const std::shared_lock<std::shared_mutex> lock(in_mpi_);
  if (closed_) return Closed();
  const Status status = CheckNotFinalized();
  return status.ok() ? function() : status;
}

// --- Messages --------------------------------------------------------------------

Status MpiChannel::Send(int to, int tag, const void* data, size_t bytes) {
  const Status status = CheckRankAndTag(to, tag, /*any=*/false);
  return status.ok() ? SendAny(to, tag, data, bytes) : status;
}

Status MpiChannel::SendAny(int to, int tag, const void* data, size_t bytes) {
  const char* const begin = static_cast<const char*>(data);
  std::list<Outgoing> sent(1);
  sent.front().bytes.assign(begin, begin + bytes);
  const Status status = InMpi([&] {
    const MpiBytes length(bytes);
    return FromMpi(MPI_Isend(sent.front().bytes.data(), length.count(), length.type(), to, tag,
                             communicator_->get(), &sent.front().request),
                   "MPI_Isend");
  });
  if (!status.ok()) return status;
  {
    const std::lock_guard<std::mutex> lock(sending_);
    outgoing_.splice(outgoing_.end(), sent);
  }
  bool all_sent = false;
  return TestOutgoing(&all_sent);
}

Status MpiChannel::TestOutgoing(bool* all_sent) {
  *all_sent = false;
  return InMpi([&]() -> Status {
    const std::lock_guard<std::mutex> lock(sending_);
    for (auto each = outgoing_.begin(); each != outgoing_.end();) {
      int done = 0;
      const Status status = FromMpi(MPI_Test(&each->request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      if (!status.ok()) return status;
      each = done ? outgoing_.erase(each) : std::next(each);
    }
    *all_sent = outgoing_.empty();
    return {};
  });
}

Status MpiChannel::Flush(double timeout_s) {
  BackOff back_off(timeout_s);
  while (true) {
    bool all_sent = false;
    const Status status = TestOutgoing(&all_sent);
    if (!status.ok() || all_sent) return status;
    if (!back_off.Wait()) return TimedOut("another rank did not take a message", timeout_s);
  }
}

// Looks for a message in the list whose bytes are all here.
bool MpiChannel::TakeArrived(int from, int tag, ChannelMessage* message) {
  std::set<std::pair<int, int>> kept_back;  // senders and tags of which an earlier one is not here
  for (auto each = arriving_.begin(); each != arriving_.end(); ++each) {
    if ((from != kAny && from != each->from) || (tag != kAny && tag != each->tag)) continue;
    if (tag == kAny && each->tag == kSumTag) continue;
    const std::pair<int, int> order(each->from, each->tag);
    if (each->request != MPI_REQUEST_NULL) {
      kept_back.insert(order);
    } else if (kept_back.count(order) == 0) {
      *message = {each->from, each->tag, std::move(each->bytes)};
      arriving_.erase(each);
      return true;
    }
  }
  return false;
}

// Adds a message to the list, if one has come.
Status MpiChannel::StartArriving(int from, int tag, bool* started) {
  int found = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status envelope;
  Status status = FromMpi(MPI_Improbe(ToMpiRank(from), ToMpiTag(tag), communicator_->get(), &found,
                                      &message, &envelope),
                          "MPI_Improbe");
  *started = status.ok() && found != 0;
  if (!*started) return status;
  Arriving& arriving = arriving_.emplace_back();
  arriving.from = envelope.MPI_SOURCE;
  arriving.tag = envelope.MPI_TAG;
  arriving.bytes.resize(MpiBytes::Of(envelope));
  const MpiBytes length(arriving.bytes.size());
  return FromMpi(
      MPI_Imrecv(arriving.bytes.data(), length.count(), length.type(), &message, &arriving.request),
      "MPI_Imrecv");
}

Status MpiChannel::TakeMessage(int from, int tag, bool* taken, ChannelMessage* message) {
  return InMpi([&]() -> Status {
    const std::lock_guard<std::mutex> lock(receiving_);
    bool started = true;
    while (started) {
      for (Arriving& each : arriving_) {
        int done = 0;
        // Becomes MPI_REQUEST_NULL when it is done.
        const Status status =
            FromMpi(MPI_Test(&each.request, &done, MPI_STATUS_IGNORE), "MPI_Test");
        if (!status.ok()) return status;
      }
      *taken = TakeArrived(from, tag, message);
      if (*taken) return {};
      const Status status = StartArriving(from, tag, &started);
      if (!status.ok()) return status;
    }
    return {};
  });
}

Status MpiChannel::Receive(int from, int tag, double timeout_s, ChannelMessage* message) {
  const Status status = CheckRankAndTag(from, tag, /*any=*/true);
  return status.ok() ? ReceiveAny(from, tag, timeout_s, message) : status;
}

Status MpiChannel::ReceiveAny(int from, int tag, double timeout_s, ChannelMessage* message) {
  BackOff back_off(timeout_s);
  while (true) {
    bool taken = false;
    Status status = TakeMessage(from, tag, &taken, message);
    if (!status.ok() || taken) return status;
    // A thread that only receives has to look after what is being sent, too.
    bool all_sent = false;
    status = TestOutgoing(&all_sent);
    if (!status.ok()) return status;
    if (!back_off.Wait()) {
      const std::string who = from == kAny ? "no rank" : "rank " + std::to_string(from);
      return TimedOut(who + " sent " + (from == kAny ? "a" : "no") + " message" +
                          (tag == kAny ? "" : " with tag " + std::to_string(tag)),
                      timeout_s);
    }
  }
}

// --- Sums ------------------------------------------------------------------------

// A piece of an all-reduce in flight, in a buffer of its own: MPI cannot be told to leave a buffer
// alone, and the caller's may go away after a time limit.
struct MpiChannel::Slice {
  char* target = nullptr;
  std::vector<char> buffer;
  MPI_Request request = MPI_REQUEST_NULL;
};

Status MpiChannel::AllReduce(void* data, int64_t count, DataType dtype,
                             const std::vector<int>& members, int64_t generation,
                             int64_t slice_bytes, double timeout_s) {
  Status status = CheckAllReduce(count, dtype, members, generation, slice_bytes);
  if (!status.ok()) return status;
  const std::unique_lock<std::mutex> lock(reducing_, std::try_to_lock);
  if (!lock.owns_lock()) {
    return {StatusCode::kInvalidArgument,
            "two threads call all_reduce on channel '" + name() + "' at the same time"};
  }
  const SumKey key(members, generation);
  if (out_of_step_.count(key) > 0) return GivenUp(members);
  char* const bytes = static_cast<char*>(data);
  // MPI has no call that makes a communicator of some ranks, or a second one after a sum was given
  // up, and returns when one of them is dead. So all other sums go by messages.
  const bool all = generation == 0 && static_cast<int>(members.size()) == size();
  status = all ? SumOfAll(bytes, count, dtype, slice_bytes, timeout_s)
               : SumOfSome(bytes, count, dtype, key, slice_bytes, timeout_s);
  if (!status.ok()) out_of_step_.insert(key);
  return status;
}

Status MpiChannel::SumOfAll(char* data, int64_t count, DataType dtype, int64_t slice_bytes,
                            double timeout_s) {
  std::list<Slice> in_flight;
  const Status status = ReduceSlices(data, count, dtype, slice_bytes, timeout_s, &in_flight);
  if (!in_flight.empty()) new std::list<Slice>(std::move(in_flight));  // MPI may still use them
  return status;
}

Status MpiChannel::SumOfSome(char* data, int64_t count, DataType dtype, const SumKey& key,
                             int64_t slice_bytes, double timeout_s) {
  const auto& [members, generation] = key;
  int64_t hash = 0;  // wraps around
  for (const int member : members) {
    hash = static_cast<int64_t>(static_cast<uint64_t>(hash) * 1'000'003 +
                                static_cast<uint64_t>(member) + 1);
  }
  MessageSum sum(
      members, rank(), {generation, hash, sums_[key]++},
      [&](int to, const std::vector<char>& bytes) {
        return SendAny(to, kSumTag, bytes.data(), bytes.size());
      },
      [&](int from, double left_s, std::vector<char>* bytes) {
        ChannelMessage message;
        const Status status = ReceiveAny(from, kSumTag, left_s, &message);
        *bytes = std::move(message.bytes);
        return status.code() == StatusCode::kTimedOut
                   ? TimedOut("all_reduce did not hear from all ranks", timeout_s)
                   : status;
      },
      timeout_s);
  return sum.Run(data, count, dtype, slice_bytes);
}

Status MpiChannel::ReduceSlices(char* data, int64_t count, DataType dtype, int64_t slice_bytes,
                                double timeout_s, std::list<Slice>* in_flight) {
  const int64_t element = ElementBytes(dtype);
  const int64_t most = std::min(slice_bytes, int64_t{1} << 30) / element;
  const MPI_Datatype type = dtype == DataType::kFloat32 ? MPI_FLOAT : MPI_DOUBLE;
  BackOff back_off(timeout_s);
  int64_t started = 0;
  while (started < count || !in_flight->empty()) {
    if (started < count && in_flight->size() < kSlicesInFlight) {
      const int64_t elements = std::min(most, count - started);
      Slice& slice = in_flight->emplace_back();
      slice.target = data + started * element;
      slice.buffer.assign(slice.target, slice.target + elements * element);
      const Status status = InMpi([&] {
        return FromMpi(MPI_Iallreduce(MPI_IN_PLACE, slice.buffer.data(), static_cast<int>(elements),
                                      type, MPI_SUM, communicator_->get(), &slice.request),
                       "MPI_Iallreduce");
      });
      if (!status.ok()) return status;
      started += elements;
      continue;
    }
    // In order: then the oldest is nearly always the first to be done.
    Slice& oldest = in_flight->front();
    int done = 0;
    const Status status = InMpi(
        [&] { return FromMpi(MPI_Test(&oldest.request, &done, MPI_STATUS_IGNORE), "MPI_Test"); });
    if (!status.ok()) return status;
    if (done) {
      std::memcpy(oldest.target, oldest.buffer.data(), oldest.buffer.size());
      in_flight->pop_front();
      back_off.Reset();
    } else if (!back_off.Wait()) {
      return TimedOut("all_reduce did not hear from all ranks", timeout_s);
    }
  }
  return {};
}

}  // namespace hvd_p3
