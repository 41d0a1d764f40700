#include "transport/mpi.h"

#include <mpi.h>

#include <string>
#include <utility>

#include "transport/mpi_algorithm.h"
#include "transport/mpi_control.h"
#include "transport/mpi_support.h"
#include "transport/mpi_transport.h"
#ifdef HVD_P3_WITH_CUDA
#include "transport/nccl_transport.h"
#endif

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

Status TryMpi(std::string* library, std::string* threads) {
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized) {
    return {StatusCode::kInvalidArgument, "MPI was started already in this process"};
  }
  int provided = MPI_THREAD_SINGLE;
  Status status =
      FromMpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  if (!status.ok()) return status;
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  status = FromMpi(MPI_Get_library_version(text, &length), "MPI_Get_library_version");
  library->assign(text, static_cast<size_t>(length));
  switch (provided) {
    case MPI_THREAD_MULTIPLE:
      *threads = "MPI_THREAD_MULTIPLE";
      break;
    case MPI_THREAD_SERIALIZED:
      *threads = "MPI_THREAD_SERIALIZED";
      break;
    case MPI_THREAD_FUNNELED:
      *threads = "MPI_THREAD_FUNNELED";
      break;
    default:
      *threads = "MPI_THREAD_SINGLE";
  }
  const Status ended = FromMpi(MPI_Finalize(), "MPI_Finalize");
  return status.ok() ? ended : status;
}

namespace {

#ifdef HVD_P3_WITH_CUDA
constexpr bool kWithCuda = true;
#else
constexpr bool kWithCuda = false;
#endif

// Whether the ranks differ in each of two things.
Status CompareRanks(const MpiCommunicator& communicator, const bool mine[2], bool differs[2]) {
  // The greatest values and, negated, the least.
  int most[4] = {mine[0] ? 1 : 0, mine[1] ? 1 : 0, mine[0] ? -1 : 0, mine[1] ? -1 : 0};
  const Status status = FromMpi(
      MPI_Allreduce(MPI_IN_PLACE, most, 4, MPI_INT, MPI_MAX, communicator.get()), "MPI_Allreduce");
  for (int i = 0; i < 2; ++i) differs[i] = most[i] != -most[i + 2];
  return status;
}

Status CheckSameOnAllRanks(const MpiCommunicator& communicator, bool horovod_sleeps) {
  const bool mine[2] = {horovod_sleeps, kWithCuda};
  bool differs[2] = {false, false};
  const Status status = CompareRanks(communicator, mine, differs);
  if (!status.ok()) return status;
  if (differs[0]) {
    return {StatusCode::kInvalidArgument,
            "some ranks have imported Horovod before hvd_p3 and others after it; import hvd_p3 "
            "first on all ranks, or Horovod first on all"};
  }
  if (differs[1]) {
    return {StatusCode::kInvalidArgument,
            std::string("hvd_p3 was built ") + (kWithCuda ? "with" : "without") +
                " CUDA on this rank and differently on others; install the same build on all "
                "hosts"};
  }
  return {};
}

#ifdef HVD_P3_WITH_CUDA
Status BroadcastText(const MpiCommunicator& communicator, std::string* text) {
  int length = static_cast<int>(text->size());
  Status status = FromMpi(MPI_Bcast(&length, 1, MPI_INT, 0, communicator.get()), "MPI_Bcast");
  if (!status.ok()) return status;
  text->resize(static_cast<size_t>(length));
  return FromMpi(MPI_Bcast(text->data(), length, MPI_CHAR, 0, communicator.get()), "MPI_Bcast");
}

Status AddGpus(const MpiCommunicator& communicator, std::unique_ptr<Transport>* transport) {
  int fewest = VisibleGpus();
  Status status =
      FromMpi(MPI_Allreduce(MPI_IN_PLACE, &fewest, 1, MPI_INT, MPI_MIN, communicator.get()),
              "MPI_Allreduce");
  if (!status.ok()) return status;
  NcclMeeting meeting;
  if (communicator.rank() == 0) meeting = MakeNcclMeeting(fewest > 0);
  status = BroadcastText(communicator, &meeting.id);
  if (status.ok()) status = BroadcastText(communicator, &meeting.problem);
  if (!status.ok()) return status;
  *transport =
      AddNcclTransport(std::move(*transport), meeting, communicator.rank(), communicator.size());
  return {};
}
#endif

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
  *transport = std::make_unique<MpiTransport>(std::move(slice_communicator), requests, independent);
#ifdef HVD_P3_WITH_CUDA
  status = AddGpus(*control_communicator, transport);
#endif
  *control = std::make_unique<MpiControlChannel>(std::move(control_communicator), requests);
  return status;
}

}  // namespace hvd_p3
