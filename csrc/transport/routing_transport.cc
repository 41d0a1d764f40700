#include "transport/routing_transport.h"

#include <utility>

namespace hvd_p3 {
namespace {

class RoutingTransport : public Transport {
 public:
  RoutingTransport(std::unique_ptr<Transport> host, std::unique_ptr<Transport> device)
      : host_(std::move(host)), device_(std::move(device)) {}

  bool takes_device_memory() const override { return true; }

  bool sums_independent_of_slices() const override {
    return host_->sums_independent_of_slices() && device_->sums_independent_of_slices();
  }

  Status Start(const SliceReduction& reduction, std::unique_ptr<Collective>* collective) override {
    return (reduction.device.is_host() ? host_ : device_)->Start(reduction, collective);
  }

  Status Progress() override {
    const Status status = host_->Progress();
    return status.ok() ? device_->Progress() : status;
  }

  bool Abort() override {
    const bool host_in_use = host_->Abort();
    const bool device_in_use = device_->Abort();
    return host_in_use || device_in_use;
  }

 private:
  const std::unique_ptr<Transport> host_;
  const std::unique_ptr<Transport> device_;
};

}  // namespace

std::unique_ptr<Transport> MakeRoutingTransport(std::unique_ptr<Transport> host,
                                                std::unique_ptr<Transport> device) {
  return std::make_unique<RoutingTransport>(std::move(host), std::move(device));
}

}  // namespace hvd_p3
