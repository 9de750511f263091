#include "expect.h"

#include "api.h"
#include "report.h"

#define TYPES 16

static uint32_t must[TYPES], may[TYPES];
static int must_count, may_count;

void expect_success(void)
{
    must_count = may_count = 0;
}

static void add(uint32_t *types, int *count, uint32_t type)
{
    if (*count == TYPES)
        fail("%s has more than %d expected errors: raise TYPES in expect.c", function_names[called], TYPES);
    types[(*count)++] = type;
}

void must_fail(uint32_t type)
{
    add(must, &must_count, type);
}

void may_fail(uint32_t type)
{
    add(may, &may_count, type);
}

void may_succeed(void)
{
    while (must_count)
        may_fail(must[--must_count]);
}

bool succeeded(uint32_t code)
{
    int i;
    if (code == DAT_SUCCESS) {
        if (must_count)
            fail("%s succeeded; expected an error of type %#x", function_names[called], must[0]);
        return true;
    }
    for (i = 0; i < must_count; i++)
        if (DAT_GET_TYPE(code) == must[i])
            return false;
    for (i = 0; i < may_count; i++)
        if (DAT_GET_TYPE(code) == may[i])
            return false;
    if (must_count)
        fail("%s returned %#x; expected type %#x", function_names[called], code, must[0]);
    fail("%s returned %#x; expected success", function_names[called], code);
}
