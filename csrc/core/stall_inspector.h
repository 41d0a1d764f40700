// Finds out why a tensor waits for long, and says so. A rank that has waited asks all others what
// they know of its tensors; their engines answer even if their programs have nothing to reduce. It
// then warns, or ends the wait with an error on all ranks. Used by the engine thread alone.
//
// With a timeout it also tells the next rank from time to time that this one lives, and listens to
// the one before: a rank may stop while all wait in an operation that is not the engine's.
//
// Messages go from rank to rank and not through a collective: the rank that is missing would be
// missing there too.
#ifndef HVD_P3_CORE_STALL_INSPECTOR_H_
#define HVD_P3_CORE_STALL_INSPECTOR_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/group.h"
#include "core/status.h"
#include "transport/transport.h"

namespace hvd_p3 {

struct StallOptions {
  double warning_s = 0;  // warn of a tensor that has waited for so long; 0: never
  double timeout_s = 0;  // end with an error after so long; 0: never
  std::function<void(const std::string&)> warn;  // receives the warning's text
  // Receives the error's text, once, and whether this rank has found it out itself.
  std::function<void(const std::string&, bool found_here)> failed;
};

// An idle engine looks this often whether another rank asks.
constexpr int64_t kIdleInspectionNs = 1'000'000'000;

class StallInspector {
 public:
  // The group that this rank has declared under a name, or null.
  using FindGroup = std::function<const Group*(const std::string& name)>;

  StallInspector(const StallOptions& options, ControlChannel* channel, FindGroup find_group);

  bool enabled() const { return enabled_; }

  // Does what is due, without blocking. `unfinished` are this rank's submitted tensors;
  // `last_transfer_ns` is when the network last finished something, or had nothing to do;
  // `in_step`: ranks reduce together, so that none can go on without another. Returns the error
  // with which this rank, or another one, ends the wait.
  Status Inspect(const std::vector<Tensor*>& unfinished, int64_t last_transfer_ns, bool in_step);

  // Sends what is not sent yet, for a while. After an error from Inspect.
  void Flush();

  // Asks ranks that have nothing to reduce to take part in rounds too, for one in which this rank
  // leaves. Repeated calls do nothing.
  void AskForLastRound();
  // Whether another rank has asked for it.
  bool last_round_wanted() const { return last_round_wanted_; }

 private:
  enum class Kind : int8_t { kQuestion, kAnswer, kFailure, kAlive, kLastRound };
  // What a rank knows of a tensor.
  enum class Knowledge : int8_t { kNone, kUnknown, kNotSubmitted, kSubmitted };

  struct Asked {
    const Tensor* tensor = nullptr;
    int64_t submitted_ns = 0;  // tells this submission from later ones
    double waited_s = 0;
    std::vector<Knowledge> by_rank;  // kNone: no answer yet
  };

  static bool IsMissing(const Asked& asked);  // on some rank
  void ReadMessages(const std::vector<Tensor*>& unfinished, Status* failure);
  void Answer(int rank, int64_t question, const std::vector<Tensor*>& unfinished,
              class Reader* reader);
  void ReadAnswer(int rank, class Reader* reader);
  void Ask(const std::vector<Tensor*>& waiting, int64_t last_transfer_ns);
  Status Conclude(int64_t last_transfer_ns);
  void TellNeighbour(int64_t now);
  Status ListenToNeighbour(const std::vector<Tensor*>& unfinished, int64_t now, bool in_step);
  // Tells all other ranks of the error with which this one ends, and returns it.
  Status EndWith(const std::string& text);
  std::string Describe(const Asked& worst) const;
  std::string Explain(int rank, Knowledge knowledge) const;
  void Send(int rank, std::string message);
  void SendToOthers(const std::string& message);

  const StallOptions options_;
  ControlChannel* const channel_;
  const FindGroup find_group_;
  const bool enabled_;
  int64_t next_look_ns_ = 0;
  int64_t last_look_ns_ = 0;
  int64_t next_sign_of_life_ns_ = 0;
  int64_t heard_ns_ = 0;  // when something last came from the rank before this one
  bool has_asked_for_last_round_ = false;
  bool last_round_wanted_ = false;
  // The question that is being asked: none while `asked_` is empty.
  int64_t question_ = 0;
  int64_t deadline_ns_ = 0;
  bool last_question_ = false;  // the timeout is over
  int answers_ = 0;
  size_t others_waiting_ = 0;  // tensors that wait too and are not in `asked_`
  std::vector<Asked> asked_;
  std::map<int, std::string> waits_for_;  // rank -> the tensor that it waits for itself
};

}  // namespace hvd_p3

#endif  // HVD_P3_CORE_STALL_INSPECTOR_H_
