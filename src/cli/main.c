/* SPDX-License-Identifier: Apache-2.0 */
/* The program space; all of it is in the library, so that tests reach it. */
#include "cli/cli.h"

int main(int argc, char **argv)
{
	return cli_main(argc, argv);
}
