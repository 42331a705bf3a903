// What torch asks of a device type: devices, streams, events, and growing a storage.
#include "allocator.h"
#include "runtime.h"

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <utility>

namespace simdev {
namespace {

// An event is a pointer to the fence it was last recorded at.
FencePtr& fence_of(void* event) {
    return *static_cast<FencePtr*>(event);
}

class Guard final : public c10::impl::DeviceGuardImplInterface {
  public:
    c10::DeviceType type() const override { return kType; }
    c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }

    c10::Device getDevice() const override { return c10::Device(kType, current_device()); }
    void setDevice(c10::Device device) const override { set_current_device(resolve(device.index())); }
    void uncheckedSetDevice(c10::Device device) const noexcept override { set_current_device(device.index()); }
    c10::Device exchangeDevice(c10::Device device) const override {
        const auto before = getDevice();
        setDevice(device);
        return before;
    }

    c10::Stream getStream(c10::Device device) const override { return current_stream(resolve(device.index())); }
    c10::Stream getDefaultStream(c10::Device device) const override {
        return c10::Stream(c10::Stream::DEFAULT, c10::Device(kType, resolve(device.index())));
    }
    c10::Stream getNewStream(c10::Device device, int) const override {
        const auto locked = lock();
        return new_stream(resolve(device.index()));
    }
    c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return getNewStream(device, 0); }
    c10::Stream exchangeStream(c10::Stream stream) const override {
        const auto before = current_stream(stream.device_index());
        set_current_stream(stream);
        return before;
    }
    bool isStreamCapturing(const c10::Stream& stream) const override {
        const auto locked = lock();
        return queue_of(stream).capturing;
    }
    bool queryStream(const c10::Stream& stream) const override {
        const auto locked = lock();
        return queue_of(stream).pending() == 0;
    }
    void synchronizeStream(const c10::Stream& stream) const override {
        const auto locked = lock();
        host_wait(queue_of(stream));
    }
    void synchronizeDevice(c10::DeviceIndex device) const override {
        const auto locked = lock();
        host_wait_for_device(resolve(device));
    }

    void record(void** event, const c10::Stream& stream, c10::DeviceIndex device, c10::EventFlag) const override {
        const auto locked = lock();
        TORCH_CHECK(device == -1 || device == stream.device_index(), "an event of simulated device ", int(device),
                    " was recorded on a stream of device ", int(stream.device_index()));
        if (!*event) {
            *event = new FencePtr;
        }
        fence_of(*event) = queue_of(stream).mark();
    }
    void block(void* event, const c10::Stream& stream) const override {
        const auto locked = lock();
        if (event) {
            queue_of(stream).wait_for(fence_of(event));
        }
    }
    bool queryEvent(void* event) const override {
        const auto locked = lock();
        return !event || fence_of(event)->reached;
    }
    void synchronizeEvent(void* event) const override {
        const auto locked = lock();
        if (event) {
            host_wait(*fence_of(event));
        }
    }
    void destroyEvent(void* event, c10::DeviceIndex) const noexcept override { delete static_cast<FencePtr*>(event); }

    void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
        allocator().recordStream(data, stream);
    }
};

class Hooks final : public at::PrivateUse1HooksInterface {
  public:
    bool isBuilt() const override { return true; }
    bool isAvailable() const override { return true; }
    bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
    c10::DeviceIndex deviceCount() const override { return kDevices; }
    c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
    void setCurrentDevice(c10::DeviceIndex device) const override { set_current_device(resolve(device)); }
    c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
        return std::exchange(device, Guard().exchangeDevice(c10::Device(kType, device)).index());
    }
    c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override { return exchangeDevice(device); }

    // The old block is free as soon as the copy is put in. That is safe on the stream it was allocated on, and as
    // unsafe on any other as it is on a real device.
    void resizePrivateUse1Bytes(const c10::Storage& storage, size_t nbytes) const override {
        auto& old = *storage.unsafeGetStorageImpl();
        TORCH_CHECK(old.resizable(), "Trying to resize storage that is not resizable");
        const c10::DeviceGuard on_its_device(old.device());
        auto grown = allocator().allocate(nbytes);
        if (const size_t kept = std::min(old.nbytes(), nbytes)) {
            allocator().copy_data(grown.get(), old.data(), kept);
        }
        old.set_data_ptr_noswap(std::move(grown));
        old.set_nbytes(nbytes);
    }
};

const c10::impl::DeviceGuardImplRegistrar guard_registered(kType, new Guard);
const bool hooks_registered = [] {
    at::RegisterPrivateUse1HooksInterface(new Hooks);
    return true;
}();

}  // namespace
}  // namespace simdev
