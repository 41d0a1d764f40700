#include "shadow/mpi_bytes.h"

#include <limits>

namespace hvd_p3 {
namespace {

constexpr size_t kBlock = size_t{1} << 30;

}  // namespace

MpiBytes::MpiBytes(size_t bytes) {
  if (bytes <= static_cast<size_t>(std::numeric_limits<int>::max())) {
    count_ = static_cast<int>(bytes);
    return;
  }
  // Blocks of 1 GiB, then the rest.
  const size_t blocks = bytes / kBlock;
  MPI_Datatype block = MPI_DATATYPE_NULL;
  MPI_Type_contiguous(static_cast<int>(kBlock), MPI_BYTE, &block);
  const int lengths[2] = {static_cast<int>(blocks), static_cast<int>(bytes % kBlock)};
  const MPI_Aint offsets[2] = {0, static_cast<MPI_Aint>(blocks * kBlock)};
  const MPI_Datatype types[2] = {block, MPI_BYTE};
  MPI_Type_create_struct(2, lengths, offsets, types, &type_);
  MPI_Type_commit(&type_);
  MPI_Type_free(&block);
  count_ = 1;
}

MpiBytes::~MpiBytes() {
  // What is in flight keeps what it needs of the type.
  if (type_ != MPI_BYTE) MPI_Type_free(&type_);
}

size_t MpiBytes::Of(const MPI_Status& envelope) {
  MPI_Count bytes = 0;
  MPI_Get_elements_x(&envelope, MPI_BYTE, &bytes);
  return static_cast<size_t>(bytes);
}

}  // namespace hvd_p3
