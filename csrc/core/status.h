// Errors as values. A Status is either OK or a code with a message that names the thing, what was
// received and what to do. Immutable; any thread may copy and read it.
#ifndef HVD_P3_CORE_STATUS_H_
#define HVD_P3_CORE_STATUS_H_

#include <string>
#include <utility>

namespace hvd_p3 {

enum class StatusCode {
  kOk,
  kInvalidArgument,  // the caller's request makes no sense
  kMismatch,         // ranks disagree about a tensor
  kTransport,        // MPI, NCCL or a peer failed
  kStalled,          // a tensor waited too long for other ranks
  kOutOfMemory,      // this rank has no memory for a buffer
  kShutdown,         // the engine stopped before the work was done
  kTimedOut,         // another rank did not answer within the caller's time limit
};

class Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

}  // namespace hvd_p3

#endif  // HVD_P3_CORE_STATUS_H_
