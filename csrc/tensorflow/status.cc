#include "tensorflow/status.h"

#include "tensorflow/core/platform/errors.h"

namespace hvd_p3 {

absl::Status ToTensorFlow(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk:
      return absl::OkStatus();
    case StatusCode::kInvalidArgument:
      return absl::InvalidArgumentError(status.message());
    case StatusCode::kMismatch:
      return absl::FailedPreconditionError(status.message());
    case StatusCode::kTransport:
      return absl::UnavailableError(status.message());
    case StatusCode::kStalled:
    case StatusCode::kTimedOut:
      return absl::DeadlineExceededError(status.message());
    case StatusCode::kOutOfMemory:
      return absl::ResourceExhaustedError(status.message());
    case StatusCode::kShutdown:
      return absl::AbortedError(status.message());
  }
  return absl::InternalError(status.message());
}

}  // namespace hvd_p3
