#include "shadow/message_sum.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "core/clock.h"

namespace hvd_p3 {

MessageSum::MessageSum(const std::vector<int>& members, int rank, const SumIdentity& identity,
                       Send send, Receive receive, double timeout_s)
    : members_(members),
      place_(std::find(members.begin(), members.end(), rank) - members.begin()),
      identity_(identity),
      send_(std::move(send)),
      receive_(std::move(receive)),
      end_ns_(NowNanoseconds() + static_cast<int64_t>(1e9 * timeout_s)) {}

Status MessageSum::Run(void* data, int64_t count, DataType dtype, int64_t slice_bytes) {
  const int64_t element = ElementBytes(dtype);
  // Each member sums a share of a block, so that none has more to send than the others.
  const int64_t block =
      std::max<int64_t>(1, slice_bytes / element) * static_cast<int64_t>(members_.size());
  for (int64_t begin = 0; begin < count && members_.size() > 1; begin += block) {
    char* const from = static_cast<char*>(data) + begin * element;
    const int64_t elements = std::min(block, count - begin);
    const Status status = dtype == DataType::kFloat32
                              ? RunBlock(reinterpret_cast<float*>(from), elements)
                              : RunBlock(reinterpret_cast<double*>(from), elements);
    if (!status.ok()) return status;
  }
  return {};
}

template <typename T>
Status MessageSum::RunBlock(T* data, int64_t count) {
  const auto size = static_cast<int64_t>(members_.size());
  const auto begin_of = [&](int64_t part) { return count * part / size; };
  // The part that was `steps` steps before this rank in the ring.
  const auto part_at = [&](int64_t steps) { return (place_ - steps + 2 * size) % size; };
  // In the first round, the sum of each part grows on its way through the ring, and is complete one
  // step before the rank where it began. In the second, the sums go around.
  for (int64_t step = 0; step < 2 * (size - 1); ++step) {
    const bool adding = step < size - 1;
    const int64_t sent = part_at(step);
    const int64_t received = part_at(step + 1);
    Status status = SendPart(data + begin_of(sent),
                             sizeof(T) * static_cast<size_t>(begin_of(sent + 1) - begin_of(sent)));
    if (!status.ok()) return status;
    const int64_t begin = begin_of(received);
    const int64_t length = begin_of(received + 1) - begin;
    const char* bytes = nullptr;
    status = ReceivePart(sizeof(T) * static_cast<size_t>(length), &bytes);
    if (!status.ok()) return status;
    for (int64_t i = 0; i < length; ++i) {
      T value;
      std::memcpy(&value, bytes + static_cast<size_t>(i) * sizeof(T), sizeof(T));
      data[begin + i] = adding ? data[begin + i] + value : value;
    }
  }
  return {};
}

Status MessageSum::SendPart(const void* data, size_t bytes) {
  std::vector<char> message(sizeof(identity_) + bytes);
  std::memcpy(message.data(), &identity_, sizeof(identity_));
  std::memcpy(message.data() + sizeof(identity_), data, bytes);
  const auto next = static_cast<size_t>(place_ + 1) % members_.size();
  return send_(members_[next], message);
}

Status MessageSum::ReceivePart(size_t bytes, const char** data) {
  const int before =
      members_[(static_cast<size_t>(place_) + members_.size() - 1) % members_.size()];
  while (true) {
    const double left_s = 1e-9 * static_cast<double>(end_ns_ - NowNanoseconds());
    const Status status = receive_(before, std::max(0.0, left_s), &message_);
    if (!status.ok()) return status;
    SumIdentity theirs;
    if (message_.size() < sizeof(theirs)) continue;
    std::memcpy(&theirs, message_.data(), sizeof(theirs));
    if (!(theirs == identity_)) continue;  // of a sum that was given up
    *data = message_.data() + sizeof(theirs);
    if (message_.size() - sizeof(theirs) == bytes) return {};
    return {StatusCode::kMismatch, "rank " + std::to_string(before) +
                                       " gives all_reduce another length than rank " +
                                       std::to_string(members_[static_cast<size_t>(place_)])};
  }
}

}  // namespace hvd_p3
