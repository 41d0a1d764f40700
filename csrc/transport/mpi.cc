#include "transport/mpi.h"

#include <mpi.h>

#include <limits>
#include <utility>
#include <vector>

#include "core/arithmetic.h"
#include "transport/host_staging.h"

namespace hvd_p3 {
namespace {

Status FromMpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return {};
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  return {StatusCode::kTransport, std::string(call) + " failed: " + std::string(text, length) +
                                      ". Another rank or the network between ranks has failed; "
                                      "look for the first error in the output of all ranks"};
}

// Horovod ends MPI on all ranks as soon as one rank ends, and MPI calls abort the process from then
// on.
Status CheckNotFinalized() {
  if (!MpiIsFinalized()) return {};
  return {StatusCode::kTransport,
          "another rank has ended and with it MPI; look for the first error in the output of all "
          "ranks, and give all ranks the same number of steps"};
}

// A duplicate of MPI_COMM_WORLD that reports errors as return codes.
class Communicator {
 public:
  static Status Duplicate(std::unique_ptr<Communicator>* made) {
    MPI_Comm comm = MPI_COMM_NULL;
    const Status status = FromMpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup");
    if (!status.ok()) return status;
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    made->reset(new Communicator(comm));
    return {};
  }
  // Not freed: MPI_Comm_free is collective, and ranks may end at different times or abort.
  ~Communicator() = default;

  MPI_Comm get() const { return comm_; }
  int rank() const {
    int rank = 0;
    MPI_Comm_rank(comm_, &rank);
    return rank;
  }
  int size() const {
    int size = 1;
    MPI_Comm_size(comm_, &size);
    return size;
  }

 private:
  explicit Communicator(MPI_Comm comm) : comm_(comm) {}
  const MPI_Comm comm_;
};

template <DataType dtype>
void AddElements(void* values, void* total, int* count, MPI_Datatype*) {
  AddInto(dtype, values, total, *count);
}

// MPI knows neither float16 nor bfloat16: sums of these are operations on 16-bit words.
class SumOperations {
 public:
  SumOperations() {
    MPI_Op_create(&AddElements<DataType::kFloat16>, /*commute=*/1, &float16_);
    MPI_Op_create(&AddElements<DataType::kBFloat16>, /*commute=*/1, &bfloat16_);
  }
  ~SumOperations() {
    if (MpiIsFinalized()) return;
    MPI_Op_free(&float16_);
    MPI_Op_free(&bfloat16_);
  }
  SumOperations(const SumOperations&) = delete;
  SumOperations& operator=(const SumOperations&) = delete;

  std::pair<MPI_Datatype, MPI_Op> For(DataType dtype) const {
    switch (dtype) {
      case DataType::kFloat16:
        return {MPI_UINT16_T, float16_};
      case DataType::kBFloat16:
        return {MPI_UINT16_T, bfloat16_};
      case DataType::kFloat32:
        return {MPI_FLOAT, MPI_SUM};
      case DataType::kFloat64:
        return {MPI_DOUBLE, MPI_SUM};
      case DataType::kInt32:
        return {MPI_INT32_T, MPI_SUM};
      case DataType::kInt64:
        return {MPI_INT64_T, MPI_SUM};
    }
    return {MPI_DATATYPE_NULL, MPI_OP_NULL};
  }

 private:
  MPI_Op float16_ = MPI_OP_NULL;
  MPI_Op bfloat16_ = MPI_OP_NULL;
};

Status TestRequest(MPI_Request* request, bool* done) {
  int flag = 0;
  Status status = CheckNotFinalized();
  if (!status.ok()) return status;
  status = FromMpi(MPI_Test(request, &flag, MPI_STATUS_IGNORE), "MPI_Test");
  *done = flag != 0;
  return status;
}

class MpiSlice : public Collective {
 public:
  explicit MpiSlice(const SliceReduction& reduction) : staging_(reduction) {}

  Status Start(MPI_Comm comm, MPI_Datatype datatype, MPI_Op op) {
    const void* send = staging_.send() != nullptr ? staging_.send() : MPI_IN_PLACE;
    return FromMpi(MPI_Iallreduce(send, staging_.receive(), static_cast<int>(staging_.count()),
                                  datatype, op, comm, &request_),
                   "MPI_Iallreduce");
  }

  Status Test(bool* done) override {
    const Status status = TestRequest(&request_, done);
    if (status.ok() && *done) staging_.Finish();
    return status;
  }

 private:
  HostStaging staging_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

class MpiTransport : public Transport {
 public:
  explicit MpiTransport(std::unique_ptr<Communicator> communicator)
      : communicator_(std::move(communicator)) {}

  Status Start(const SliceReduction& reduction, std::unique_ptr<Collective>* collective) override {
    int64_t count = 0;
    for (const Segment& segment : reduction.segments) count += segment.count;
    if (count > std::numeric_limits<int>::max()) {
      return {StatusCode::kInvalidArgument,
              "a slice has more elements than MPI can count; lower HVD_P3_SLICE_BYTES"};
    }
    Status status = CheckNotFinalized();
    if (!status.ok()) return status;
    const auto [datatype, op] = operations_.For(reduction.dtype);
    auto slice = std::make_unique<MpiSlice>(reduction);
    status = slice->Start(communicator_->get(), datatype, op);
    *collective = std::move(slice);
    return status;
  }

  bool Abort() override { return true; }  // MPI cannot cancel a collective

 private:
  const std::unique_ptr<Communicator> communicator_;
  const SumOperations operations_;
};

class MpiAnd : public Collective {
 public:
  explicit MpiAnd(std::vector<uint64_t>* words) : words_(words) {}

  Status Start(MPI_Comm comm) {
    return FromMpi(MPI_Iallreduce(MPI_IN_PLACE, words_->data(), static_cast<int>(words_->size()),
                                  MPI_UINT64_T, MPI_BAND, comm, &request_),
                   "MPI_Iallreduce");
  }
  Status Test(bool* done) override { return TestRequest(&request_, done); }

 private:
  std::vector<uint64_t>* const words_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

// Exchanges the lengths first, then the bytes.
class MpiAllGather : public Collective {
 public:
  MpiAllGather(const Communicator& communicator, std::string mine, std::vector<std::string>* all)
      : comm_(communicator.get()),
        mine_(std::move(mine)),
        my_length_(static_cast<int>(mine_.size())),
        lengths_(static_cast<size_t>(communicator.size())),
        all_(all) {}

  Status Start() {
    return FromMpi(
        MPI_Iallgather(&my_length_, 1, MPI_INT, lengths_.data(), 1, MPI_INT, comm_, &request_),
        "MPI_Iallgather");
  }

  Status Test(bool* done) override {
    const Status status = TestRequest(&request_, done);
    if (!status.ok() || !*done) return status;
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
    return FromMpi(MPI_Iallgatherv(mine_.data(), my_length_, MPI_CHAR, bytes_.data(),
                                   lengths_.data(), offsets_.data(), MPI_CHAR, comm_, &request_),
                   "MPI_Iallgatherv");
  }

  const MPI_Comm comm_;
  const std::string mine_;
  const int my_length_;
  std::vector<int> lengths_;
  std::vector<int> offsets_;
  std::string bytes_;
  std::vector<std::string>* const all_;
  bool exchanging_bytes_ = false;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

class MpiControlChannel : public ControlChannel {
 public:
  explicit MpiControlChannel(std::unique_ptr<Communicator> communicator)
      : communicator_(std::move(communicator)) {}

  int rank() const override { return communicator_->rank(); }
  int size() const override { return communicator_->size(); }

  Status StartAnd(std::vector<uint64_t>* words, std::unique_ptr<Collective>* collective) override {
    Status status = CheckNotFinalized();
    if (!status.ok()) return status;
    auto round = std::make_unique<MpiAnd>(words);
    status = round->Start(communicator_->get());
    *collective = std::move(round);
    return status;
  }

  Status StartAllGather(const std::string& mine, std::vector<std::string>* all,
                        std::unique_ptr<Collective>* collective) override {
    Status status = CheckNotFinalized();
    if (!status.ok()) return status;
    auto exchange = std::make_unique<MpiAllGather>(*communicator_, mine, all);
    status = exchange->Start();
    *collective = std::move(exchange);
    return status;
  }

  bool Abort() override { return true; }  // MPI cannot cancel a collective

 private:
  const std::unique_ptr<Communicator> communicator_;
};

}  // namespace

bool MpiIsFinalized() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  return finalized != 0;
}

Status CheckMpi() {
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (!initialized || MpiIsFinalized()) {
    return {StatusCode::kInvalidArgument,
            "MPI is not initialised; launch with horovodrun --mpi (or mpirun) and call "
            "hvd_p3.init() first"};
  }
  int provided = MPI_THREAD_SINGLE;
  MPI_Query_thread(&provided);
  if (provided != MPI_THREAD_MULTIPLE) {
    return {StatusCode::kInvalidArgument,
            "MPI was initialised without MPI_THREAD_MULTIPLE, which the engine thread needs; call "
            "hvd_p3.init() before other libraries initialise MPI, or initialise it with "
            "MPI_THREAD_MULTIPLE"};
  }
  return {};
}

Status MakeMpiTransport(std::unique_ptr<ControlChannel>* control,
                        std::unique_ptr<Transport>* transport) {
  Status status = CheckMpi();
  if (!status.ok()) return status;
  std::unique_ptr<Communicator> control_communicator;
  std::unique_ptr<Communicator> slice_communicator;
  status = Communicator::Duplicate(&control_communicator);
  if (!status.ok()) return status;
  status = Communicator::Duplicate(&slice_communicator);
  if (!status.ok()) return status;
  *control = std::make_unique<MpiControlChannel>(std::move(control_communicator));
  *transport = std::make_unique<MpiTransport>(std::move(slice_communicator));
  return {};
}

}  // namespace hvd_p3
