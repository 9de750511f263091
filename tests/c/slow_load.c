/* A library that takes a second to load. It is linked with a provider, whose functions the dynamic loader finds through it. */
#include <unistd.h>

__attribute__((constructor)) static void take_time(void)
{
    sleep(1);
}
