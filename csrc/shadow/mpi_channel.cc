#include "shadow/mpi_channel.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/rank_list.h"
#include "shadow/back_off.h"
#include "shadow/mpi_bytes.h"
#include "transport/mpi.h"

namespace hvd_p3 {
namespace {

// Before anybody has the channel, so that callers may use these too.
constexpr int kNameTag = 0;
constexpr int kGroupTag = 0;  // of messages that MPI keeps apart

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
  const std::shared_lock<std::shared_mutex> lock(in_mpi_);
  if (closed_) return Closed();
  const Status status = CheckNotFinalized();
  return status.ok() ? function() : status;
}

// --- Messages --------------------------------------------------------------------

Status MpiChannel::Send(int to, int tag, const void* data, size_t bytes) {
  Status status = CheckRankAndTag(to, tag, /*any=*/false);
  if (!status.ok()) return status;
  const char* const begin = static_cast<const char*>(data);
  std::list<Outgoing> sent(1);
  sent.front().bytes.assign(begin, begin + bytes);
  status = InMpi([&] {
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
  Status status = CheckRankAndTag(from, tag, /*any=*/true);
  if (!status.ok()) return status;
  BackOff back_off(timeout_s);
  while (true) {
    bool taken = false;
    status = TakeMessage(from, tag, &taken, message);
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

Status MpiChannel::CommunicatorOf(const std::vector<int>& members, MPI_Comm* comm) {
  *comm = communicator_->get();
  if (static_cast<int>(members.size()) == size()) return {};
  const auto found = communicators_.find(members);
  if (found != communicators_.end()) {
    *comm = found->second;
    return {};
  }
  // Collective over the members alone, who have all just come here.
  return InMpi([&] {
    MPI_Group all = MPI_GROUP_NULL;
    MPI_Group some = MPI_GROUP_NULL;
    MPI_Comm_group(communicator_->get(), &all);
    MPI_Group_incl(all, static_cast<int>(members.size()), members.data(), &some);
    const Status status =
        FromMpi(MPI_Comm_create_group(communicator_->get(), some, kGroupTag, comm),
                "MPI_Comm_create_group");
    MPI_Group_free(&some);
    MPI_Group_free(&all);
    if (status.ok()) {
      MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN);
      communicators_[members] = *comm;
    }
    return status;
  });
}

Status MpiChannel::AllReduce(void* data, int64_t count, DataType dtype,
                             const std::vector<int>& members, int64_t slice_bytes,
                             double timeout_s) {
  Status status = CheckAllReduce(count, dtype, members, slice_bytes);
  if (!status.ok()) return status;
  const std::unique_lock<std::mutex> lock(reducing_, std::try_to_lock);
  if (!lock.owns_lock()) {
    return {StatusCode::kInvalidArgument,
            "two threads call all_reduce on channel '" + name() + "' at the same time"};
  }
  if (out_of_step_.count(members) > 0) {
    return {StatusCode::kTransport, "all_reduce on channel '" + name() + "' among " +
                                        RankList(members) +
                                        " is no longer possible: an earlier one was given up"};
  }
  MPI_Comm comm = MPI_COMM_NULL;
  status = CommunicatorOf(members, &comm);
  if (!status.ok()) return status;
  std::list<Slice> in_flight;
  status = ReduceSlices(static_cast<char*>(data), count, dtype, comm, slice_bytes, timeout_s,
                        &in_flight);
  if (!status.ok()) {
    out_of_step_.insert(members);
    if (!in_flight.empty()) new std::list<Slice>(std::move(in_flight));  // MPI may still use them
  }
  return status;
}

Status MpiChannel::ReduceSlices(char* data, int64_t count, DataType dtype, MPI_Comm comm,
                                int64_t slice_bytes, double timeout_s,
                                std::list<Slice>* in_flight) {
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
                                      type, MPI_SUM, comm, &slice.request),
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
