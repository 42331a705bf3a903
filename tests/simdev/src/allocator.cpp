#include "allocator.h"

#include <c10/util/Exception.h>

#include <array>
#include <cstring>
#include <utility>

namespace simdev {
namespace {

void release(void* address);

class Allocator final : public c10::DeviceAllocator {
  public:
    c10::DataPtr allocate(size_t nbytes) override {
        const auto locked = lock();
        const auto device = current_device();
        void* const address = nbytes ? memory_of(device).allocate(nbytes) : nullptr;
        return {address, address, &release, c10::Device(kType, device)};
    }

    c10::DeleterFnPtr raw_deleter() const override { return &release; }

    void copy_data(void* target, const void* source, size_t nbytes) const override {
        const auto locked = lock();
        queue_of(current_stream(current_device())).push([=] { std::memcpy(target, source, nbytes); });
    }

    bool initialized() override { return true; }

    void emptyCache(c10::MempoolId_t) override {
        const auto locked = lock();
        empty_cache_calls[current_device()]++;
        for (auto& memory : memories) {
            memory.empty_cache();
        }
    }

    void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
        const auto locked = lock();
        if (data.get() && data.get_deleter() == &release) {
            memory_of(data.device().index()).record_stream(data.get(), stream);
        }
    }

    c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
        const auto locked = lock();
        return memory_of(device).stats;
    }

    void resetAccumulatedStats(c10::DeviceIndex device) override {
        const auto locked = lock();
        memory_of(device).reset_accumulated();
    }

    void resetPeakStats(c10::DeviceIndex device) override {
        const auto locked = lock();
        memory_of(device).reset_peaks();
    }

    std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
        const auto locked = lock();
        const auto& memory = memory_of(device);
        const size_t free = memory.limit() > memory.reserved() ? memory.limit() - memory.reserved() : 0;
        return {free, memory.limit()};
    }

    std::array<Memory, kDevices> memories{Memory(0), Memory(1)};
    std::array<int64_t, kDevices> empty_cache_calls{};
};

// Never destroyed: tensors may outlive static destructors.
Allocator& instance() {
    static auto* const allocator = new Allocator;
    return *allocator;
}

void release(void* address) {
    const auto locked = lock();
    for (auto& memory : instance().memories) {
        if (memory.owns(address)) {
            memory.release(address);
        }
    }
}

const c10::AllocatorRegisterer<kType> registered(&instance());

}  // namespace

c10::DeviceAllocator& allocator() {
    return instance();
}

Memory& memory_of(c10::DeviceIndex device) {
    return instance().memories[resolve(device)];
}

int64_t empty_cache_calls(c10::DeviceIndex device) {
    return instance().empty_cache_calls[resolve(device)];
}

void reset_memories() {
    for (auto& memory : instance().memories) {
        memory.reset();
    }
    instance().empty_cache_calls = {};
}

}  // namespace simdev
