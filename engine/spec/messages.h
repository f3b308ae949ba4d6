// SPDX-License-Identifier: MIT
// The texts of definition errors. The first group is the kernel's own wording (6.18, trace_probe), so that users recognize
// errors of tracefs' error_log. The second group is the tool's, for mistakes that the kernel refuses without a text or accepts
// by accident.
#pragma once

#include <string_view>

namespace uprobe::spec::message {

inline constexpr std::string_view kFileNotFound = "Failed to find the given file";
inline constexpr std::string_view kNotRegularFile = "Not a regular file";
inline constexpr std::string_view kBadCounter = "Invalid reference counter offset";
inline constexpr std::string_view kCounterOpen = "Reference counter brace is not closed";
inline constexpr std::string_view kCounterSuffix = "Reference counter has wrong suffix";
inline constexpr std::string_view kBadOffset = "Invalid uprobe offset";
inline constexpr std::string_view kAddressSuffix = "Invalid probed address suffix";
inline constexpr std::string_view kNoGroup = "Group name is not specified";
inline constexpr std::string_view kGroupTooLong = "Group name is too long";
inline constexpr std::string_view kBadGroup = "Group name must follow the same rules as C identifiers";
inline constexpr std::string_view kNoEvent = "Event name is not specified";
inline constexpr std::string_view kEventTooLong = "Event name is too long";
inline constexpr std::string_view kBadEvent = "Event name must follow the same rules as C identifiers";
inline constexpr std::string_view kRetvalOnProbe = "$retval is not available on probe";
inline constexpr std::string_view kLatencyOnProbe = "$latency is not available on probe";
inline constexpr std::string_view kSelfOnProbe = "$self is not available on probe";
inline constexpr std::string_view kReturnAddressOnProbe = "ra is not available on probe";
inline constexpr std::string_view kMarkerReturn = "A marker is a place in a function: it has no return";
inline constexpr std::string_view kBlankInPath = "A path with a blank is given by -x";
inline constexpr std::string_view kOpenParenthesis = "The parenthesis is not closed";
inline constexpr std::string_view kUnopenedParenthesis = "The parenthesis closes nothing";
inline constexpr std::string_view kNameBeforeParenthesis = "The function's name is missing";
inline constexpr std::string_view kEntryOnProbe = "Only a return probe looks back to the entry";
inline constexpr std::string_view kEntrySame = "Only registers and memory are fetched at the entry";
inline constexpr std::string_view kBadVariable = "Invalid $-variable specified";
inline constexpr std::string_view kBadRegister = "Invalid register name";
inline constexpr std::string_view kBadMemory = "Invalid memory address";
inline constexpr std::string_view kBadImmediate = "Invalid immediate value";
inline constexpr std::string_view kStringOpen = "String is not closed with '\"'";
inline constexpr std::string_view kSymbolFetch = "Symbol is not available with uprobe";
inline constexpr std::string_view kBadFileOffset = "Invalid file offset value";
inline constexpr std::string_view kTooDeep = "Dereference is too much nested";
inline constexpr std::string_view kNeedBrace = "Dereference needs a brace";
inline constexpr std::string_view kBadDereference = "Invalid dereference offset";
inline constexpr std::string_view kBraceOpen = "Dereference brace is not closed";
inline constexpr std::string_view kCommDereference = "$comm can not be dereferenced";
inline constexpr std::string_view kBadFetch = "Invalid fetch argument";
inline constexpr std::string_view kArrayOpen = "Array is not closed";
inline constexpr std::string_view kArraySuffix = "Array has wrong suffix";
inline constexpr std::string_view kBadArray = "Invalid array size";
inline constexpr std::string_view kArrayTooBig = "Array number is too big";
inline constexpr std::string_view kBadType = "Unknown type is specified";
inline constexpr std::string_view kNeedMemory = "String accepts only memory argument";
inline constexpr std::string_view kBadBitfield = "Invalid bitfield";
inline constexpr std::string_view kNeedStringType = "$comm and immediate-string only accepts string type";
inline constexpr std::string_view kArgumentNameTooLong = "Argument name is too long";
inline constexpr std::string_view kNoArgumentName = "Argument name is not specified";
inline constexpr std::string_view kBadArgumentName = "Argument name must follow the same rules as C identifiers";
inline constexpr std::string_view kUsedArgumentName = "This argument name is already used";
inline constexpr std::string_view kArgumentTooLong = "Argument expression is too long";
inline constexpr std::string_view kNoArgumentBody = "No argument expression";
inline constexpr std::string_view kTooManyArguments = "Too many arguments are specified";
inline constexpr std::string_view kEventTooBig = "Event too big (too many fields?)";
inline constexpr std::string_view kNoBtf = "BTF is not available or not supported";
inline constexpr std::string_view kNotEntry = "$arg* can be used only on function entry or exit";
inline constexpr std::string_view kBadArgumentNumber = "Invalid argument number";
inline constexpr std::string_view kDifferentKind = "Probe type is different from existing probe";
inline constexpr std::string_view kDifferentArguments = "Argument type or name is different from existing probe";
inline constexpr std::string_view kSameProbe = "There is already the exact same probe event";

// The tool's own.
inline constexpr std::string_view kEmpty = "The definition is empty";
inline constexpr std::string_view kLineTooLong = "The line is too long";
inline constexpr std::string_view kHasNul = "The line has a NUL byte";
inline constexpr std::string_view kSeveralLines = "A definition is one line";
inline constexpr std::string_view kNotADefinition = "A definition starts with 'p' or 'r'";
inline constexpr std::string_view kDeletionHere = "A deletion is not a definition";
inline constexpr std::string_view kAfterKind = "Only ':' and a name may follow the 'p' or 'r'";
inline constexpr std::string_view kNoPlace = "The place to probe is missing";
inline constexpr std::string_view kNoSlash = "The path needs a '/'";
inline constexpr std::string_view kNoOffset = "The place needs an offset: PATH:OFFSET";
inline constexpr std::string_view kNoSymbol = "The place needs an offset or a symbol: PATH:OFFSET or PATH:SYMBOL";
inline constexpr std::string_view kNoPath = "The path is missing";
inline constexpr std::string_view kBadSymbolOffset = "Invalid offset from the symbol";
inline constexpr std::string_view kAfterVariable = "Nothing may follow the variable";
inline constexpr std::string_view kAfterBrace = "Nothing may follow the closing brace";
inline constexpr std::string_view kStackIndexTooBig = "The stack index does not fit into 32 bits";
inline constexpr std::string_view kDereferenceTooBig = "The dereference offset does not fit into 32 bits";
inline constexpr std::string_view kCounterConflict = "Another probe of this place has a different reference counter";
inline constexpr std::string_view kPartOfAddress = "A part of a register is no address";
inline constexpr std::string_view kVectorAddress = "A vector register is no address";
inline constexpr std::string_view kVectorTooShort = "The vector register has not so many bytes";
inline constexpr std::string_view kTypeTooWide = "The type is wider than the part of the register";
inline constexpr std::string_view kWideArray = "There are no arrays of numbers of 16 bytes";
inline constexpr std::string_view kWideNeedsMemory =
    "A number of 16 bytes is in memory, in a vector register, in a variable, or returned";
inline constexpr std::string_view kBadLine = "Invalid line number";
inline constexpr std::string_view kVariableInside = "A variable is no address to add to";
inline constexpr std::string_view kNoCondition = "A condition has to follow the 'if'";
inline constexpr std::string_view kBadDeletion = "A deletion is -:GROUP/EVENT, -:EVENT or -:GROUP/";
inline constexpr std::string_view kNothingToDelete = "No event matches";

// Whether the text is about parentheses that are no pair.
constexpr bool is_of_parentheses(std::string_view text) {
  return text == kOpenParenthesis || text == kUnopenedParenthesis;
}

// Whether the text is in the first group.
bool is_kernels(std::string_view text);

}  // namespace uprobe::spec::message
