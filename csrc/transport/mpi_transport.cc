#include "transport/mpi_transport.h"

#include <limits>
#include <utility>

#include "core/arithmetic.h"
#include "transport/host_staging.h"
#include "transport/mpi.h"

namespace hvd_p3 {
namespace {

template <DataType dtype>
void AddElements(void* values, void* total, int* count, MPI_Datatype*) {
  AddInto(dtype, values, total, *count);
}

}  // namespace

// MPI knows neither float16 nor bfloat16: sums of these are operations on 16-bit words.
class MpiTransport::Operations {
 public:
  Operations() {
    MPI_Op_create(&AddElements<DataType::kFloat16>, /*commute=*/1, &float16_);
    MPI_Op_create(&AddElements<DataType::kBFloat16>, /*commute=*/1, &bfloat16_);
  }
  ~Operations() {
    if (MpiIsFinalized()) return;
    MPI_Op_free(&float16_);
    MPI_Op_free(&bfloat16_);
  }
  Operations(const Operations&) = delete;
  Operations& operator=(const Operations&) = delete;

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

class MpiTransport::Slice : public Collective {
 public:
  Slice(const SliceReduction& reduction, int size)
      // Open MPI's algorithms need an element for each rank.
      : staging_(reduction, size) {}

  Status Start(MPI_Comm comm, MPI_Datatype datatype, MPI_Op op, MpiRequests* requests) {
    MPI_Request request = MPI_REQUEST_NULL;
    // MPI asks that all ranks reduce in place or none; whose gradient is in its output differs.
    const Status status =
        FromMpi(MPI_Iallreduce(MPI_IN_PLACE, staging_.buffer(), static_cast<int>(staging_.count()),
                               datatype, op, comm, &request),
                "MPI_Iallreduce");
    if (status.ok()) requests->Add(request, &pending_);
    return status;
  }
  Status Test(bool* done) override {
    *done = pending_ == 0;
    if (*done) staging_.Finish();
    return {};
  }

 private:
  HostStaging staging_;
  int pending_ = 0;
};

MpiTransport::MpiTransport(std::unique_ptr<MpiCommunicator> communicator,
                           std::shared_ptr<MpiRequests> requests, bool sums_independent_of_slices)
    : communicator_(std::move(communicator)),
      operations_(std::make_unique<Operations>()),
      requests_(std::move(requests)),
      sums_independent_of_slices_(sums_independent_of_slices) {}

MpiTransport::~MpiTransport() = default;

Status MpiTransport::Start(const SliceReduction& reduction,
                           std::unique_ptr<Collective>* collective) {
  int64_t count = 0;
  for (const Segment& segment : reduction.segments) count += segment.count;
  if (count > std::numeric_limits<int>::max()) {
    return {StatusCode::kInvalidArgument,
            "a slice has more elements than MPI can count; lower HVD_P3_SLICE_BYTES"};
  }
  Status status = CheckNotFinalized();
  if (!status.ok()) return status;
  const auto [datatype, op] = operations_->For(reduction.dtype);
  auto slice = std::make_unique<Slice>(reduction, communicator_->size());
  status = slice->Start(communicator_->get(), datatype, op, requests_.get());
  *collective = std::move(slice);
  return status;
}

}  // namespace hvd_p3
