// What the MPI control channel and the MPI transport share: statuses from MPI's return codes, and
// communicators of their own. Used by the engine thread, and by the thread that makes them.
#ifndef HVD_P3_TRANSPORT_MPI_SUPPORT_H_
#define HVD_P3_TRANSPORT_MPI_SUPPORT_H_

#include <mpi.h>

#include <functional>
#include <memory>

#include "core/status.h"

namespace hvd_p3 {

Status FromMpi(int code, const char* call);

// Horovod ends MPI on all ranks as soon as one rank ends, and MPI calls abort the process from then
// on.
Status CheckNotFinalized();

// A duplicate of MPI_COMM_WORLD that reports errors as return codes.
class MpiCommunicator {
 public:
  // Collective over all ranks of MPI_COMM_WORLD.
  static Status Duplicate(std::unique_ptr<MpiCommunicator>* made);
  // The same without blocking inside of MPI: calls `wait` between two looks, and gives up with
  // kTransport when it returns false.
  static Status Duplicate(const std::function<bool()>& wait,
                          std::unique_ptr<MpiCommunicator>* made);
  // Not freed: MPI_Comm_free is collective, and ranks may end at different times or abort.
  ~MpiCommunicator() = default;

  MPI_Comm get() const { return comm_; }
  int rank() const { return rank_; }
  int size() const { return size_; }

 private:
  explicit MpiCommunicator(MPI_Comm comm);
  const MPI_Comm comm_;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace hvd_p3

#endif  // HVD_P3_TRANSPORT_MPI_SUPPORT_H_
