#include "transport/mpi.h"

#include <mpi.h>

#include <utility>

#include "transport/mpi_algorithm.h"
#include "transport/mpi_control.h"
#include "transport/mpi_support.h"
#include "transport/mpi_transport.h"

namespace hvd_p3 {

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
  std::unique_ptr<MpiCommunicator> control_communicator;
  std::unique_ptr<MpiCommunicator> slice_communicator;
  status = MpiCommunicator::Duplicate(&control_communicator);
  if (!status.ok()) return status;
  status = MpiCommunicator::Duplicate(&slice_communicator);
  if (!status.ok()) return status;
  const bool independent = ChooseAllReduceAlgorithm(slice_communicator->size());
  const auto requests = std::make_shared<MpiRequests>();
  *control = std::make_unique<MpiControlChannel>(std::move(control_communicator), requests);
  *transport = std::make_unique<MpiTransport>(std::move(slice_communicator), requests, independent);
  return {};
}

}  // namespace hvd_p3
