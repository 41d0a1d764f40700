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

namespace {

Status CheckSameOnAllRanks(const MpiCommunicator& communicator, bool horovod_sleeps) {
  // The greatest value and, negated, the least.
  int most[2] = {horovod_sleeps ? 1 : 0, horovod_sleeps ? -1 : 0};
  const Status status = FromMpi(
      MPI_Allreduce(MPI_IN_PLACE, most, 2, MPI_INT, MPI_MAX, communicator.get()), "MPI_Allreduce");
  if (!status.ok() || most[0] == -most[1]) return status;
  return {StatusCode::kInvalidArgument,
          "some ranks have imported Horovod before hvd_p3 and others after it; import hvd_p3 first "
          "on all ranks, or Horovod first on all"};
}

}  // namespace

Status MakeMpiTransport(bool horovod_sleeps, std::unique_ptr<ControlChannel>* control,
                        std::unique_ptr<Transport>* transport) {
  Status status = CheckMpi();
  if (!status.ok()) return status;
  std::unique_ptr<MpiCommunicator> control_communicator;
  std::unique_ptr<MpiCommunicator> slice_communicator;
  status = MpiCommunicator::Duplicate(&control_communicator);
  if (!status.ok()) return status;
  status = MpiCommunicator::Duplicate(&slice_communicator);
  if (!status.ok()) return status;
  status = CheckSameOnAllRanks(*control_communicator, horovod_sleeps);
  if (!status.ok()) return status;
  ChooseAllReduceAlgorithm(slice_communicator->size());
  bool independent = false;
  status = TrySumsIndependentOfSlices(*slice_communicator, &independent);
  if (!status.ok()) return status;
  const auto requests = std::make_shared<MpiRequests>();
  *control = std::make_unique<MpiControlChannel>(std::move(control_communicator), requests);
  *transport = std::make_unique<MpiTransport>(std::move(slice_communicator), requests, independent);
  return {};
}

}  // namespace hvd_p3
