#include "transport/mpi_support.h"

#include <string>

#include "transport/mpi.h"

namespace hvd_p3 {

Status FromMpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return {};
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  return {StatusCode::kTransport,
          std::string(call) + " failed: " + std::string(text, static_cast<size_t>(length)) +
              ". Another rank or the network between ranks has failed; look for the first error in "
              "the output of all ranks"};
}

Status CheckNotFinalized() {
  if (!MpiIsFinalized()) return {};
  return {StatusCode::kTransport,
          "another rank has ended and with it MPI; look for the first error in the output of all "
          "ranks, and give all ranks the same number of steps"};
}

MpiCommunicator::MpiCommunicator(MPI_Comm comm) : comm_(comm) {
  MPI_Comm_rank(comm, &rank_);
  MPI_Comm_size(comm, &size_);
}

Status MpiCommunicator::Duplicate(std::unique_ptr<MpiCommunicator>* made) {
  MPI_Comm comm = MPI_COMM_NULL;
  const Status status = FromMpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup");
  if (!status.ok()) return status;
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  made->reset(new MpiCommunicator(comm));
  return {};
}

Status MpiCommunicator::Duplicate(const std::function<bool()>& wait,
                                  std::unique_ptr<MpiCommunicator>* made) {
  auto comm = std::make_unique<MPI_Comm>(MPI_COMM_NULL);
  MPI_Request request = MPI_REQUEST_NULL;
  Status status = FromMpi(MPI_Comm_idup(MPI_COMM_WORLD, comm.get(), &request), "MPI_Comm_idup");
  int done = 0;
  while (status.ok()) {
    status = CheckNotFinalized();
    if (!status.ok()) break;
    status = FromMpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (!status.ok() || done) break;
    if (!wait()) status = {StatusCode::kTransport, "not all ranks made a communicator in time"};
  }
  if (!status.ok()) {
    comm.release();  // MPI may write to it until the process ends
    return status;
  }
  MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN);
  made->reset(new MpiCommunicator(*comm));
  return {};
}

}  // namespace hvd_p3
