// What a test can do to the devices and see of them. operators.cpp registers it as torch.ops.simdev.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace simdev {

bool step(int64_t stream, int64_t device);
int64_t pending(int64_t stream, int64_t device);
void hang_stream(int64_t stream, int64_t device);
void capture(int64_t stream, int64_t device, bool on);
void set_limit(std::optional<int64_t> nbytes, int64_t device);
std::vector<int64_t> counts(int64_t device);
void reset();

}  // namespace simdev
