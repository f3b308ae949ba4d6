// The list of the kernel's own texts: what a test compares the recorded answers of a kernel with.
#include "engine/spec/messages.h"

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

std::span<const std::string_view> kernel_messages() { return kAll; }

}  // namespace uprobe::spec::message
