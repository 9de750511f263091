/* Opens, queries and closes an IA some times. Fails if LIBRARY is not mapped afterwards.
 *
 * usage: open_close IA-NAME TIMES [LIBRARY]
 */
#include <dat2/udat.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "need.h"

int main(int argc, char **argv)
{
    int time, times = argc > 2 ? atoi(argv[2]) : 1;
    for (time = 0; time < times; time++) {
        DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
        DAT_IA_HANDLE ia;
        DAT_PROVIDER_ATTR attr;
        CHECK(dat_ia_open(argv[1], 8, &async, &ia));
        memset(&attr, 0, sizeof attr);
        CHECK(dat_ia_query(ia, DAT_HANDLE_NULL, DAT_IA_FIELD_NONE, NULL, DAT_PROVIDER_FIELD_ALL, &attr));
        NEED(attr.provider_name[0]);
        CHECK(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
    }
    NEED(argc < 4 || dlopen(argv[3], RTLD_LAZY | RTLD_NOLOAD));
    return 0;
}
