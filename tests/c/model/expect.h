/* Which codes the next call may return. Types are compared; subtypes are the conformance suite's. */
#ifndef EXPECT_H
#define EXPECT_H

#include <stdbool.h>
#include <stdint.h>

/* Begins a call: success is expected. */
void expect_success(void);

/* The call must fail, with this type or another that is given. */
void must_fail(uint32_t type);

/* The call may also fail with this type. */
void may_fail(uint32_t type);

/* What must_fail said does not hold any more: the state has changed meanwhile. */
void may_succeed(void);

/* Compares the code of the last call; returns whether it succeeded. */
bool succeeded(uint32_t code);

#endif
