#include "core/global_engine.h"

#include <mutex>
#include <utility>

namespace hvd_p3 {
namespace {

struct Holder {
  std::mutex mutex;
  std::shared_ptr<Engine> engine;
  TensorHandle next_first_handle = 0;
};

// Never destroyed: TensorFlow threads may still ask for the engine while the process exits.
Holder& TheHolder() {
  static Holder* const holder = new Holder;
  return *holder;
}

}  // namespace

std::shared_ptr<Engine> GlobalEngine() {
  Holder& holder = TheHolder();
  const std::lock_guard<std::mutex> lock(holder.mutex);
  return holder.engine;
}

void SetGlobalEngine(std::shared_ptr<Engine> engine) {
  Holder& holder = TheHolder();
  const std::lock_guard<std::mutex> lock(holder.mutex);
  // `engine` now holds the previous one, which is destroyed after the lock is released.
  std::swap(holder.engine, engine);
}

void AbandonGlobalEngine() {
  // Not locked: there is one thread, and the mutex may be held by one that only the parent has.
  new std::shared_ptr<Engine>(std::move(TheHolder().engine));
}

TensorHandle NextFirstHandle() {
  constexpr TensorHandle kHandlesOfAnEngine = TensorHandle{1} << 32;
  Holder& holder = TheHolder();
  const std::lock_guard<std::mutex> lock(holder.mutex);
  return std::exchange(holder.next_first_handle, holder.next_first_handle + kHandlesOfAnEngine);
}

}  // namespace hvd_p3
