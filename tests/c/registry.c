/*
 * dat_strerror of every code of dat_error.h, dat_registry_list_providers, and HA relations. `codes.h` lists the header's names, each as
 * CODE(name). One source for both versions of the API: -DUDAPL_1_2 takes the 1.2 headers. Compiles as C and as C++.
 */
#ifdef UDAPL_1_2
#include <dat/udat.h>
#define MAJOR 1
#else
#include <dat2/udat.h>
#include <dat2/dat_registry.h>
#define MAJOR 2
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "need.h"

struct code {
    unsigned number;
    const char *name;
};

#define CODE(name) {(unsigned)(name), #name},
static const struct code codes[] = {
#include "codes.h"
};

static int is_type(const struct code *c) { return (c->number & DAT_TYPE_MASK) != 0; }

static void strings(void) {
    const char *major, *minor;
    size_t count = sizeof codes / sizeof *codes, i;
    for (i = 0; i < count; i++) {
        const struct code *c = &codes[i];
        if (is_type(c)) {
            NEED(dat_strerror((DAT_RETURN)(DAT_CLASS_ERROR | c->number), &major, &minor) == DAT_SUCCESS);
            NEED(strcmp(major, c->name) == 0);
            NEED(strcmp(minor, "") == 0);
        } else if (c->number != 0) {
            unsigned number = DAT_CLASS_ERROR | (unsigned)DAT_INVALID_STATE | c->number;
            NEED(dat_strerror((DAT_RETURN)number, &major, &minor) == DAT_SUCCESS);
            NEED(strcmp(major, "DAT_INVALID_STATE") == 0);
            NEED(strcmp(minor, c->name) == 0);
        }
    }
    NEED(dat_strerror(DAT_SUCCESS, &major, &minor) == DAT_SUCCESS && strcmp(major, "DAT_SUCCESS") == 0);
    NEED(dat_strerror((DAT_RETURN)0x80180000, &major, &minor) != DAT_SUCCESS);
    NEED(dat_strerror((DAT_RETURN)0x800700ff, &major, &minor) != DAT_SUCCESS);
    NEED(DAT_GET_TYPE(dat_strerror(DAT_SUCCESS, NULL, &minor)) == DAT_INVALID_PARAMETER);
    printf("%u codes\n", (unsigned)count);
}

static void providers(void) {
    DAT_PROVIDER_INFO room[8], *list[8];
    DAT_COUNT number = -1, i, found = 0;
    for (i = 0; i < 8; i++) {
        memset(&room[i], 0x5a, sizeof room[i]);
        list[i] = &room[i];
    }
    /* Too small an array fails, and the call returns the number of entries. */
    NEED(DAT_GET_TYPE(dat_registry_list_providers(0, &number, NULL)) == DAT_INVALID_PARAMETER);
    NEED(number > 1 && number <= 8);
    NEED(DAT_GET_TYPE(dat_registry_list_providers(1, &number, list)) == DAT_INVALID_PARAMETER);
    NEED(number > 1 && room[0].dapl_version_major == MAJOR);
    NEED(room[1].dapl_version_major == 0x5a5a5a5a);
    NEED(DAT_GET_TYPE(dat_registry_list_providers(8, NULL, list)) == DAT_INVALID_PARAMETER);
    NEED(DAT_GET_TYPE(dat_registry_list_providers(8, &number, NULL)) == DAT_INVALID_PARAMETER);

    NEED(dat_registry_list_providers(8, &number, list) == DAT_SUCCESS);
    for (i = 0; i < number; i++) {
        NEED(room[i].dapl_version_major == MAJOR);
        found += strcmp(room[i].ia_name, "loop") == 0;
    }
    NEED(found == 1);
}

int main(void) {
    strings();
    providers();
#ifndef UDAPL_1_2
    {
        DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
        DAT_IA_HANDLE ia = DAT_HANDLE_NULL;
        DAT_BOOLEAN related = (DAT_BOOLEAN)7;
        DAT_HA_RELATIONSHIP known = (DAT_HA_RELATIONSHIP)7;
        char other[] = "classic";
        NEED(dat_ia_open((char *)"loop", 8, &async, &ia) == DAT_SUCCESS);
        NEED(dat_ia_ha_related(ia, other, &related) == DAT_SUCCESS && related == 0);
        NEED(DAT_GET_TYPE(dat_ia_ha_related(ia, other, NULL)) == DAT_INVALID_PARAMETER);
        NEED(dat_registry_providers_related((char *)"loop", (char *)"loop", &known) == DAT_SUCCESS && known == DAT_HA_FALSE);
        NEED(dat_registry_providers_related((char *)"loop", other, &known) == DAT_SUCCESS && known == DAT_HA_FALSE);
        NEED(DAT_GET_TYPE(dat_registry_providers_related((char *)"loop", (char *)"nobody", &known)) == DAT_PROVIDER_NOT_FOUND);
        NEED(DAT_GET_TYPE(dat_registry_providers_related(NULL, other, &known)) == DAT_INVALID_PARAMETER);
        NEED(DAT_GET_TYPE(dat_registry_providers_related(other, NULL, &known)) == DAT_INVALID_PARAMETER);
        NEED(DAT_GET_TYPE(dat_registry_providers_related(other, other, NULL)) == DAT_INVALID_PARAMETER);
        NEED(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG) == DAT_SUCCESS);
        NEED(DAT_GET_TYPE(dat_ia_ha_related(ia, other, &related)) == DAT_INVALID_HANDLE);
        /* The entry of another major version is not used. */
        NEED(DAT_GET_TYPE(dat_ia_openv((char *)"loop", 8, &async, &ia, 1, 2, DAT_FALSE)) == DAT_PROVIDER_NOT_FOUND);
    }
#endif
    puts("registry: PASS");
    return 0;
}
