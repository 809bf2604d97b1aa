/* The agent of a sandbox by itself, under sanitizers, for tests that send it frames. Its processes are those of the machine,
 * so it runs in a pid namespace of its own. */
#include "agent/agent.h"

#include "prepare.h"

int main(void)
{
	static const struct preparation limits = {.open_files = 256, .file_bytes = 1u << 20, .pids = 64};

	agent_serve(&limits);
}
