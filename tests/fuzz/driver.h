// SPDX-License-Identifier: MIT
// The functions that every *_fuzz.cpp defines. Each becomes an ordinary test (driver.cpp is its main: mutated seeds, the
// same ones at each run) and, with clang and UPROBE_FUZZERS, a libFuzzer program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// Feeds one input to the code under test; returns 0. A defect shows as a crash, a sanitizer report or std::abort().
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

// Good inputs to start from: small ones, each of a different kind. At least one.
std::vector<std::string> fuzz_seeds();
