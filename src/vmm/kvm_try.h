/* SPDX-License-Identifier: Apache-2.0 */
/* Whether KVM here runs what kernels are made of. */
#pragma once

#include <stdbool.h>

#define KVM_REASON_SIZE 160

/* Runs a tiny guest in a child process, some milliseconds, a second at most. *ret_present: /dev/kvm
   opens. True when the guest came to its end; else reason says why not. */
bool kvm_try(bool *ret_present, char reason[static KVM_REASON_SIZE]);
