// SPDX-License-Identifier: MIT
// The list of the kernel's own texts.
#include "engine/spec/messages.h"

#include <algorithm>
#include <iterator>

namespace uprobe::spec::message {
namespace {

constexpr std::string_view kAll[] = {
    kFileNotFound,   kNotRegularFile,  kBadCounter,       kCounterOpen,       kCounterSuffix,  kBadOffset,
    kAddressSuffix,  kNoGroup,         kGroupTooLong,     kBadGroup,          kNoEvent,        kEventTooLong,
    kBadEvent,       kRetvalOnProbe,   kBadVariable,      kBadRegister,       kBadMemory,      kBadImmediate,
    kStringOpen,     kSymbolFetch,     kBadFileOffset,    kTooDeep,           kNeedBrace,      kBadDereference,
    kBraceOpen,      kCommDereference, kBadFetch,         kArrayOpen,         kArraySuffix,    kBadArray,
    kArrayTooBig,    kBadType,         kNeedMemory,       kBadBitfield,       kNeedStringType, kArgumentNameTooLong,
    kNoArgumentName, kBadArgumentName, kUsedArgumentName, kArgumentTooLong,   kNoArgumentBody, kTooManyArguments,
    kEventTooBig,    kNoBtf,           kNotEntry,         kBadArgumentNumber, kDifferentKind,  kDifferentArguments,
    kSameProbe,
};

}  // namespace

bool is_kernels(std::string_view text) { return std::find(std::begin(kAll), std::end(kAll), text) != std::end(kAll); }

}  // namespace uprobe::spec::message
