#include "transport/mpi_control.h"

#include <algorithm>
#include <utility>

namespace hvd_p3 {
namespace {

// Of the messages from rank to rank; rounds use tags from 0 to the logarithm of the size.
constexpr int kMessageTag = 1000;

// A bitwise AND by dissemination (Hensgen, Finkel and Manber, 1988): in step k each rank sends what
// it has to the rank 2^k above it and combines it with what comes from the rank 2^k below. After
// ceil(log2(size)) steps all have all; that a rank's words may be combined twice does no harm to an
// AND. This has half the steps of an all-reduce made of a reduction and a broadcast, and the time
// of a round is time in which nothing new can start.
//
// Rounds need no numbers: MPI keeps the order of messages from one rank with one tag.
class MpiAnd : public Collective {
 public:
  MpiAnd(const MpiCommunicator& communicator, MpiRequests* requests, std::vector<uint64_t>* words)
      : communicator_(communicator), requests_(requests), words_(words) {}

  Status Start() { return StartStep(); }

  Status Test(bool* done) override {
    *done = false;
    while (distance_ < communicator_.size()) {
      if (pending_ > 0) return {};
      for (size_t i = 0; i < words_->size(); ++i) (*words_)[i] &= received_[i];
      distance_ *= 2;
      ++step_;
      const Status status = StartStep();
      if (!status.ok()) return status;
    }
    *done = true;
    return {};
  }

 private:
  Status StartStep() {
    const int size = communicator_.size();
    if (distance_ >= size) return {};
    const int rank = communicator_.rank();
    const int count = static_cast<int>(words_->size());
    sent_ = *words_;
    received_.resize(words_->size());
    MPI_Request request = MPI_REQUEST_NULL;
    Status status =
        FromMpi(MPI_Irecv(received_.data(), count, MPI_UINT64_T, (rank - distance_ + size) % size,
                          step_, communicator_.get(), &request),
                "MPI_Irecv");
    if (!status.ok()) return status;
    requests_->Add(request, &pending_);
    status = FromMpi(MPI_Isend(sent_.data(), count, MPI_UINT64_T, (rank + distance_) % size, step_,
                               communicator_.get(), &request),
                     "MPI_Isend");
    if (status.ok()) requests_->Add(request, &pending_);
    return status;
  }

  const MpiCommunicator& communicator_;
  MpiRequests* const requests_;
  std::vector<uint64_t>* const words_;
  std::vector<uint64_t> sent_;
  std::vector<uint64_t> received_;
  int distance_ = 1;
  int step_ = 0;  // also the tag
  int pending_ = 0;
};

// Exchanges the lengths first, then the bytes.
class MpiAllGather : public Collective {
 public:
  MpiAllGather(const MpiCommunicator& communicator, MpiRequests* requests, std::string mine,
               std::vector<std::string>* all)
      : comm_(communicator.get()),
        requests_(requests),
        mine_(std::move(mine)),
        my_length_(static_cast<int>(mine_.size())),
        lengths_(static_cast<size_t>(communicator.size())),
        all_(all) {}

  Status Start() {
    MPI_Request request = MPI_REQUEST_NULL;
    const Status status = FromMpi(
        MPI_Iallgather(&my_length_, 1, MPI_INT, lengths_.data(), 1, MPI_INT, comm_, &request),
        "MPI_Iallgather");
    if (status.ok()) requests_->Add(request, &pending_);
    return status;
  }

  Status Test(bool* done) override {
    *done = pending_ == 0;
    if (!*done) return {};
    if (!exchanging_bytes_) {
      *done = false;
      exchanging_bytes_ = true;
      return StartBytes();
    }
    for (size_t rank = 0; rank < lengths_.size(); ++rank) {
      all_->push_back(
          bytes_.substr(static_cast<size_t>(offsets_[rank]), static_cast<size_t>(lengths_[rank])));
    }
    return {};
  }

 private:
  Status StartBytes() {
    int total = 0;
    for (const int length : lengths_) {
      offsets_.push_back(total);
      total += length;
    }
    bytes_.resize(static_cast<size_t>(total));
    MPI_Request request = MPI_REQUEST_NULL;
    const Status status =
        FromMpi(MPI_Iallgatherv(mine_.data(), my_length_, MPI_CHAR, bytes_.data(), lengths_.data(),
                                offsets_.data(), MPI_CHAR, comm_, &request),
                "MPI_Iallgatherv");
    if (status.ok()) requests_->Add(request, &pending_);
    return status;
  }

  const MPI_Comm comm_;
  MpiRequests* const requests_;
  const std::string mine_;
  const int my_length_;
  std::vector<int> lengths_;
  std::vector<int> offsets_;
  std::string bytes_;
  std::vector<std::string>* const all_;
  bool exchanging_bytes_ = false;
  int pending_ = 0;
};

}  // namespace

Status MpiControlChannel::StartAnd(std::vector<uint64_t>* words,
                                   std::unique_ptr<Collective>* collective) {
  Status status = CheckNotFinalized();
  if (!status.ok()) return status;
  auto round = std::make_unique<MpiAnd>(*communicator_, requests_.get(), words);
  status = round->Start();
  *collective = std::move(round);
  return status;
}

Status MpiControlChannel::StartAllGather(const std::string& mine, std::vector<std::string>* all,
                                         std::unique_ptr<Collective>* collective) {
  Status status = CheckNotFinalized();
  if (!status.ok()) return status;
  auto exchange = std::make_unique<MpiAllGather>(*communicator_, requests_.get(), mine, all);
  status = exchange->Start();
  *collective = std::move(exchange);
  return status;
}

MpiControlChannel::~MpiControlChannel() {
  // MPI may still read what is not sent. Elements of a list stay where they are when it is moved.
  if (sending()) new std::list<Outgoing>(std::move(outgoing_));
}

Status MpiControlChannel::Send(int rank, std::string message) {
  const Status status = CheckNotFinalized();
  if (!status.ok()) return status;
  outgoing_.remove_if([](const Outgoing& each) { return each.pending == 0; });
  outgoing_.push_back({std::move(message), 0});
  Outgoing& sent = outgoing_.back();
  MPI_Request request = MPI_REQUEST_NULL;
  const Status started =
      FromMpi(MPI_Isend(sent.bytes.data(), static_cast<int>(sent.bytes.size()), MPI_CHAR, rank,
                        kMessageTag, communicator_->get(), &request),
              "MPI_Isend");
  if (started.ok()) requests_->Add(request, &sent.pending);
  return started;
}

bool MpiControlChannel::sending() const {
  return std::any_of(outgoing_.begin(), outgoing_.end(),
                     [](const Outgoing& each) { return each.pending > 0; });
}

Status MpiControlChannel::Receive(int* rank, std::string* message, bool* received) {
  *received = false;
  Status status = CheckNotFinalized();
  if (!status.ok()) return status;
  int arrived = 0;
  MPI_Status envelope;
  status =
      FromMpi(MPI_Iprobe(MPI_ANY_SOURCE, kMessageTag, communicator_->get(), &arrived, &envelope),
              "MPI_Iprobe");
  if (!status.ok() || !arrived) return status;
  int length = 0;
  MPI_Get_count(&envelope, MPI_CHAR, &length);
  message->resize(static_cast<size_t>(length));
  status = FromMpi(MPI_Recv(message->data(), length, MPI_CHAR, envelope.MPI_SOURCE, kMessageTag,
                            communicator_->get(), MPI_STATUS_IGNORE),
                   "MPI_Recv");
  *rank = envelope.MPI_SOURCE;
  *received = status.ok();
  return status;
}

}  // namespace hvd_p3
