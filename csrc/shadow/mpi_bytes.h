// Messages longer than MPI's int can count, as one element of a datatype of their length. Any
// thread may use it while MPI is initialised.
#ifndef HVD_P3_SHADOW_MPI_BYTES_H_
#define HVD_P3_SHADOW_MPI_BYTES_H_

#include <mpi.h>

#include <cstddef>

namespace hvd_p3 {

class MpiBytes {
 public:
  explicit MpiBytes(size_t bytes);
  ~MpiBytes();
  MpiBytes(const MpiBytes&) = delete;
  MpiBytes& operator=(const MpiBytes&) = delete;

  int count() const { return count_; }
  MPI_Datatype type() const { return type_; }

  // The length of a message that was found.
  static size_t Of(const MPI_Status& envelope);

 private:
  int count_ = 0;
  MPI_Datatype type_ = MPI_BYTE;
};

}  // namespace hvd_p3

#endif  // HVD_P3_SHADOW_MPI_BYTES_H_
