// SPDX-License-Identifier: MIT
// Keys and values of histograms that no field of the event has: they become fields of it.
//
//   -p f --trigger=hist:keys=$arg1.log2      ->  -p 'f arg1=$arg1' --trigger=hist:keys=arg1.log2
//   -p f --trigger=hist:keys=size:vals=used  ->  -p 'f size used' with these variables of the program
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace uprobe::program {

struct HistogramFields {
  std::vector<std::string> triggers;  // with the names of fields in place of '$' names
  std::string definition;             // with fields for the '$' names
  // The same with a variable for each other name that is no field; equal to it where there is none. Whether the program has such
  // variables is not known here.
  std::string with_variables;
};

HistogramFields fields_for(std::string_view definition, const std::vector<std::string>& triggers);

}  // namespace uprobe::program
