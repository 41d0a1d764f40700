#include "transport/mpi_requests.h"

#include <algorithm>
#include <functional>

#include "transport/mpi_support.h"

namespace hvd_p3 {

void MpiRequests::Add(MPI_Request request, int* pending) {
  ++*pending;
  requests_.push_back(request);
  pending_.push_back(pending);
}

Status MpiRequests::Progress() {
  if (requests_.empty()) return {};
  Status status = CheckNotFinalized();
  if (!status.ok()) return status;
  complete_.resize(requests_.size());
  int count = 0;
  // Open MPI looks at the network after it has looked at the requests: a second call sees the news.
  for (int call = 0; call < 2 && status.ok() && count == 0; ++call) {
    status = FromMpi(MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count,
                                  complete_.data(), MPI_STATUSES_IGNORE),
                     "MPI_Testsome");
  }
  if (!status.ok() || count <= 0) return status;
  complete_.resize(static_cast<size_t>(count));
  // From the last to the first, so that erasing one moves none of those still to be erased.
  std::sort(complete_.begin(), complete_.end(), std::greater<int>());
  for (const int index : complete_) {
    --*pending_[static_cast<size_t>(index)];
    requests_.erase(requests_.begin() + index);
    pending_.erase(pending_.begin() + index);
  }
  return {};
}

}  // namespace hvd_p3
