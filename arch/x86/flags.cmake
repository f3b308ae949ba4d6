# SPDX-License-Identifier: MIT
# Flags of in-target code that this machine's compilers need (uprobe_in_target).

# The application's vector registers are not saved at a hit by jump.
set(UPROBE_IN_TARGET_FLAGS -mgeneral-regs-only -mno-red-zone)
# No string instruction: DF is the application's.
set(UPROBE_IN_TARGET_GNU_FLAGS -mmemcpy-strategy=libcall:-1:noalign -mmemset-strategy=libcall:-1:noalign)
