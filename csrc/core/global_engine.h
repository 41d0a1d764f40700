// The one engine of the process, shared by the Python module and the TensorFlow ops. The only
// mutable global state of the library. Any thread may call these functions.
#ifndef HVD_P3_CORE_GLOBAL_ENGINE_H_
#define HVD_P3_CORE_GLOBAL_ENGINE_H_

#include <memory>

#include "core/engine.h"

namespace hvd_p3 {

// Null before it is set and after it is reset. The engine may be shut down while others hold it.
std::shared_ptr<Engine> GlobalEngine();

void SetGlobalEngine(std::shared_ptr<Engine> engine);

// In a process that was just forked: forgets the engine without ending it, since its thread and its
// share of MPI are the parent's. Its memory is never freed.
void AbandonGlobalEngine();

// A range of tensor handles that no other engine of the process uses; for EngineOptions.
TensorHandle NextFirstHandle();

}  // namespace hvd_p3

#endif  // HVD_P3_CORE_GLOBAL_ENGINE_H_
