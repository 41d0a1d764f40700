// A replacement of MPI_Allreduce for small bitwise operations, which saves the processor. Any
// thread may call it, if MPI was initialised with MPI_THREAD_MULTIPLE.
//
// Horovod's background thread agrees with the other ranks in every cycle (1 ms), also when it has
// nothing to do, by an MPI_Allreduce with MPI_BAND or MPI_BOR. Ranks enter it at different times,
// keep that distance from cycle to cycle, and those that come early spin until the last comes:
// about half a processor for each rank, taken from computation and from the engine thread. Here
// they sleep; and a rank that has had nothing new to say for a while comes later. Operations on
// data, and those of other callers than Horovod's library, are not affected.
//
// MPI allows this: its profiling interface (MPI 3.1, section 14.2) gives every function a second
// name, PMPI_..., so that a library may replace the first. It works if this library is loaded into
// the global scope before Horovod; hvd_p3/_environment.py does that.
#include <dlfcn.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

namespace {

constexpr size_t kMostBytes = 32 * 1024;
// Horovod sends no messages of its own on its communicators; MPI has tags up to 32767 at least.
constexpr int kFirstTag = 32000;
// While waiting for others: yield for kSpin, then sleep for a part of the time waited.
constexpr std::chrono::microseconds kSpin{20};
constexpr std::chrono::microseconds kShortestSleep{20};
constexpr std::chrono::microseconds kLongestSleep{2'000};
// A rank that has said the same for some time T comes T / kIdleShare later, but kLongestDelay at
// most. So an operation of Horovod waits for at most 2 % of the time since the one before it.
constexpr int kIdleShare = 50;
constexpr std::chrono::milliseconds kLongestDelay{20};

using Clock = std::chrono::steady_clock;

// Whether the code at this address is that of Horovod's library, horovod/tensorflow/mpi_lib….so.
bool IsInHorovod(const void* address) {
  // A search of all libraries and their symbols costs more than the operation; a thread mostly
  // calls from one place.
  thread_local const void* known = nullptr;
  thread_local bool known_is_in_horovod = false;
  if (address == known) return known_is_in_horovod;
  Dl_info library;
  known = address;
  known_is_in_horovod = dladdr(address, &library) != 0 && library.dli_fname != nullptr &&
                        std::strstr(library.dli_fname, "horovod") != nullptr &&
                        std::strstr(library.dli_fname, "mpi_lib") != nullptr;
  return known_is_in_horovod;
}

// The size in bytes of an operation that is replaced, or 0 for one that is not.
size_t ReplacedBytes(int count, MPI_Datatype datatype, MPI_Op op) {
  int provided = MPI_THREAD_SINGLE;
  int element = 0;
  if ((op != MPI_BAND && op != MPI_BOR) || PMPI_Query_thread(&provided) != MPI_SUCCESS ||
      provided != MPI_THREAD_MULTIPLE || PMPI_Type_size(datatype, &element) != MPI_SUCCESS) {
    return 0;
  }
  const size_t bytes = static_cast<size_t>(count) * static_cast<size_t>(element);
  return bytes <= kMostBytes ? bytes : 0;
}

// A test looks at the network after it has looked at the requests, so the second sees the news.
int TestTwice(std::array<MPI_Request, 2>* requests, int* done) {
  const int result = PMPI_Testall(2, requests->data(), done, MPI_STATUSES_IGNORE);
  if (result != MPI_SUCCESS || *done) return result;
  return PMPI_Testall(2, requests->data(), done, MPI_STATUSES_IGNORE);
}

int WaitAsleep(std::array<MPI_Request, 2>* requests) {
  const Clock::time_point start = Clock::now();
  while (true) {
    int done = 0;
    const int result = TestTwice(requests, &done);
    if (result != MPI_SUCCESS || done) return result;
    const Clock::duration waited = Clock::now() - start;
    if (waited < kSpin) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(
          std::clamp<Clock::duration>(waited / 4, kShortestSleep, kLongestSleep));
    }
  }
}

// By dissemination, as in transport/mpi_control.cc: bytes combined twice do no harm to AND and OR.
int Combine(std::vector<unsigned char>* bytes, bool by_and, MPI_Comm comm) {
  int rank = 0;
  int size = 1;
  PMPI_Comm_rank(comm, &rank);
  PMPI_Comm_size(comm, &size);
  const int count = static_cast<int>(bytes->size());
  std::vector<unsigned char> received(bytes->size());
  int tag = kFirstTag;
  for (int distance = 1; distance < size; distance *= 2, ++tag) {
    std::array<MPI_Request, 2> requests{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    int result = PMPI_Irecv(received.data(), count, MPI_BYTE, (rank - distance + size) % size, tag,
                            comm, &requests[0]);
    if (result != MPI_SUCCESS) return result;
    result = PMPI_Isend(bytes->data(), count, MPI_BYTE, (rank + distance) % size, tag, comm,
                        &requests[1]);
    if (result != MPI_SUCCESS) return result;
    result = WaitAsleep(&requests);
    if (result != MPI_SUCCESS) return result;
    for (size_t i = 0; i < bytes->size(); ++i) {
      (*bytes)[i] = by_and ? (*bytes)[i] & received[i] : (*bytes)[i] | received[i];
    }
  }
  return MPI_SUCCESS;
}

// Sleeps if this thread has been saying the same for a while.
void DelayIfIdle(const std::vector<unsigned char>& bytes) {
  thread_local std::vector<unsigned char> said;
  thread_local Clock::time_point since;
  const Clock::time_point now = Clock::now();
  if (bytes != said) {
    said = bytes;
    since = now;
    return;
  }
  std::this_thread::sleep_for(std::min<Clock::duration>((now - since) / kIdleShare, kLongestDelay));
}

}  // namespace

extern "C" int MPI_Allreduce(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype,
                             MPI_Op op, MPI_Comm comm) {
  const size_t size =
      IsInHorovod(__builtin_return_address(0)) ? ReplacedBytes(count, datatype, op) : 0;
  if (size == 0) return PMPI_Allreduce(sendbuf, recvbuf, count, datatype, op, comm);
  const void* input = sendbuf == MPI_IN_PLACE ? recvbuf : sendbuf;
  std::vector<unsigned char> bytes(size);
  std::memcpy(bytes.data(), input, size);
  DelayIfIdle(bytes);
  const int result = Combine(&bytes, op == MPI_BAND, comm);
  std::memcpy(recvbuf, bytes.data(), size);
  return result;
}
