#include "memory.h"

#include <c10/util/Exception.h>

#include <sys/mman.h>

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

namespace simdev {
namespace {

constexpr size_t kAlignment = 512;
constexpr size_t kLargestSmall = kMiB;  // requests up to here share small segments
constexpr size_t kSmallSegment = 2 * kMiB;
constexpr size_t kLargeSegment = 20 * kMiB;
constexpr size_t kOwnSegmentFrom = 10 * kMiB;
constexpr size_t kOwnSegmentAlignment = 2 * kMiB;

size_t round_up(size_t nbytes, size_t multiple) {
    return (nbytes + multiple - 1) / multiple * multiple;
}

size_t block_size(size_t nbytes) {
    return round_up(std::max<size_t>(nbytes, 1), kAlignment);
}

size_t segment_size(size_t size) {
    if (size <= kLargestSmall) {
        return kSmallSegment;
    }
    return size < kOwnSegmentFrom ? kLargeSegment : round_up(size, kOwnSegmentAlignment);
}

bool worth_splitting(bool small, size_t remainder) {
    return small ? remainder >= kAlignment : remainder > kLargestSmall;
}

bool all_reached(const std::vector<FencePtr>& fences) {
    return std::all_of(fences.begin(), fences.end(), [](const FencePtr& fence) { return fence->reached; });
}

using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;

// torch keeps each figure for all segments, and for small and large ones.
template <typename Change>
void for_both(StatArray& figure, const Segment& segment, Change change) {
    change(figure[size_t(StatType::AGGREGATE)]);
    change(figure[size_t(segment.small ? StatType::SMALL_POOL : StatType::LARGE_POOL)]);
}

void add(StatArray& figure, const Segment& segment, size_t amount) {
    for_both(figure, segment, [amount](auto& stat) { stat.increase(amount); });
}

void subtract(StatArray& figure, const Segment& segment, size_t amount) {
    for_both(figure, segment, [amount](auto& stat) { stat.decrease(amount); });
}

template <typename Change>
void for_every_stat(c10::CachingDeviceAllocator::DeviceStats& stats, Change change) {
    for (auto* figure : {&stats.allocation, &stats.segment, &stats.active, &stats.allocated_bytes,
                         &stats.reserved_bytes, &stats.active_bytes, &stats.requested_bytes}) {
        for (auto& stat : *figure) {
            change(stat);
        }
    }
}

}  // namespace

bool Memory::SmallestFirst::operator()(const Block* left, const Block* right) const {
    return std::tie(left->segment->stream, left->size, left->address) <
           std::tie(right->segment->stream, right->size, right->address);
}

void* Memory::allocate(size_t nbytes) {
    if (!capture_underway()) {  // a real one may not ask for events during a capture
        take_back_reached();
    }
    const size_t size = block_size(nbytes);
    const bool small = size <= kLargestSmall;
    const c10::StreamId stream = current_stream(device_).id();
    Block* block = take_free_block(small, stream, size);
    if (!block) {
        block = take_new_segment(small, stream, size);
    }
    if (!block) {
        fail(nbytes);
    }
    split(*block, size);
    block->state = Block::State::used;
    block->requested = nbytes;
    used_[block->address] = block;
    add(stats.allocation, *block->segment, 1);
    add(stats.allocated_bytes, *block->segment, block->size);
    add(stats.active, *block->segment, 1);
    add(stats.active_bytes, *block->segment, block->size);
    add(stats.requested_bytes, *block->segment, nbytes);
    return block->address;
}

void Memory::release(void* address) {
    const auto found = used_.find(static_cast<char*>(address));
    Block& block = *found->second;
    used_.erase(found);
    subtract(stats.allocation, *block.segment, 1);
    subtract(stats.allocated_bytes, *block.segment, block.size);
    if (block.users.empty()) {
        finish_release(block);
        return;
    }
    block.state = Block::State::leaving;
    leaving_.push_back(&block);
    if (!capture_underway()) {  // otherwise placed after it
        place_fences(block);
    }
}

void Memory::record_stream(void* address, const c10::Stream& stream) {
    const auto found = used_.find(static_cast<char*>(address));
    if (found == used_.end()) {
        return;
    }
    Block& block = *found->second;
    if (stream.device_index() != device_ || stream.id() != block.segment->stream) {
        block.users.insert(stream);
    }
}

void Memory::empty_cache() {
    if (!capture_underway()) {
        wait_for_leaving();
    }
    std::vector<Segment*> idle;
    for (const auto& [base, segment] : segments_) {
        const Block& first = segment->blocks.begin()->second;
        if (segment->blocks.size() == 1 && first.state == Block::State::free) {
            idle.push_back(segment.get());
        }
    }
    if (!idle.empty()) {
        drain_device(device_);  // as freeing device memory does, and before anything pending loses its memory
    }
    for (Segment* segment : idle) {
        unmap_segment(*segment);
    }
}

void Memory::reset() {
    limit_ = kMemoryOfADevice;
    empty_cache();
    reset_accumulated();
    reset_peaks();
    frees_under_capture = 0;
}

void Memory::reset_accumulated() {
    for_every_stat(stats, [](auto& stat) { stat.reset_accumulated(); });
    stats.num_alloc_retries = stats.num_ooms = stats.num_device_alloc = stats.num_device_free = 0;
}

void Memory::reset_peaks() {
    for_every_stat(stats, [](auto& stat) { stat.reset_peak(); });
}

// The smallest block of this stream that is large enough. However much larger it is.
Block* Memory::take_free_block(bool small, c10::StreamId stream, size_t size) {
    auto& candidates = free_blocks(small);
    Segment wanted_segment{nullptr, 0, stream, small};
    Block wanted{&wanted_segment, nullptr, size};
    const auto found = candidates.lower_bound(&wanted);
    if (found == candidates.end() || (*found)->segment->stream != stream) {
        return nullptr;
    }
    Block* const block = *found;
    candidates.erase(found);
    return block;
}

// Null if there is no room, also after giving back what the cache holds.
Block* Memory::take_new_segment(bool small, c10::StreamId stream, size_t size) {
    if (Block* const block = map_segment(small, stream, segment_size(size))) {
        return block;
    }
    if (capture_underway()) {  // the cache must not be touched then
        return nullptr;
    }
    stats.num_alloc_retries++;
    empty_cache();
    return map_segment(small, stream, segment_size(size));
}

Block* Memory::map_segment(bool small, c10::StreamId stream, size_t size) {
    if (size > limit_ || reserved() > limit_ - size) {
        return nullptr;
    }
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* const mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (mapped == MAP_FAILED) {
        return nullptr;
    }
    auto* const base = static_cast<char*>(mapped);
    auto& segment = segments_[base] = std::make_unique<Segment>(Segment{base, size, stream, small});
    add(stats.segment, *segment, 1);
    add(stats.reserved_bytes, *segment, size);
    stats.num_device_alloc++;
    return &segment->blocks.emplace(base, Block{segment.get(), base, size}).first->second;
}

void Memory::split(Block& block, size_t size) {
    const size_t remainder = block.size - size;
    Segment& segment = *block.segment;
    if (!worth_splitting(segment.small, remainder)) {
        return;
    }
    block.size = size;
    char* const address = block.address + size;
    auto& rest = segment.blocks.emplace(address, Block{&segment, address, remainder}).first->second;
    free_blocks(segment.small).insert(&rest);
}

void Memory::finish_release(Block& block) {
    subtract(stats.active, *block.segment, 1);
    subtract(stats.active_bytes, *block.segment, block.size);
    subtract(stats.requested_bytes, *block.segment, block.requested);
    block.state = Block::State::free;
    block.users.clear();
    block.fences.clear();
    Block& merged = merge_with_neighbours(block);
    free_blocks(merged.segment->small).insert(&merged);
}

// Hazard: `block` may be gone afterwards, swallowed by the one before it.
Block& Memory::merge_with_neighbours(Block& block) {
    auto& blocks = block.segment->blocks;
    auto& free = free_blocks(block.segment->small);
    auto here = blocks.find(block.address);
    const auto next = std::next(here);
    if (next != blocks.end() && next->second.state == Block::State::free) {
        free.erase(&next->second);
        here->second.size += next->second.size;
        blocks.erase(next);
    }
    if (here != blocks.begin() && std::prev(here)->second.state == Block::State::free) {
        const auto previous = std::prev(here);
        free.erase(&previous->second);  // before its size changes: the set is ordered by it
        previous->second.size += here->second.size;
        blocks.erase(here);
        here = previous;
    }
    return here->second;
}

void Memory::place_fences(Block& block) {
    for (const auto& stream : block.users) {
        block.fences.push_back(queue_of(stream).mark());
    }
    block.users.clear();
}

// Only looks, never waits.
void Memory::take_back_reached() {
    for (Block* block : leaving_) {
        if (!block->users.empty()) {  // freed during a capture
            place_fences(*block);
        }
    }
    const auto stays = [](const Block* block) { return !all_reached(block->fences); };
    const auto reached = std::stable_partition(leaving_.begin(), leaving_.end(), stays);
    const std::vector<Block*> done(reached, leaving_.end());
    leaving_.erase(reached, leaving_.end());
    for (Block* block : done) {
        finish_release(*block);
    }
}

void Memory::wait_for_leaving() {
    take_back_reached();
    for (const Block* block : leaving_) {
        for (const auto& fence : block->fences) {
            run_until_reached(*fence);
        }
    }
    take_back_reached();
}

// Hazard: nothing may be pending on the device.
void Memory::unmap_segment(Segment& segment) {
    if (capture_underway()) {
        frees_under_capture++;
    }
    subtract(stats.segment, segment, 1);
    subtract(stats.reserved_bytes, segment, segment.size);
    stats.num_device_free++;
    free_blocks(segment.small).erase(&segment.blocks.begin()->second);
    const int failed = munmap(segment.base, segment.size);
    TORCH_INTERNAL_ASSERT(!failed);
    segments_.erase(segment.base);
}

void Memory::fail(size_t nbytes) {
    stats.num_ooms++;
    TORCH_CHECK_WITH(OutOfMemoryError, false, "simulated device out of memory: tried to allocate ", nbytes,
                     " bytes on device ", int(device_), ", which holds ", reserved(), " of ", limit_, " bytes, ",
                     stats.allocated_bytes[0].current, " of them allocated");
    std::abort();  // not reached; the macro does not tell the compiler
}

}  // namespace simdev
