/* SPDX-License-Identifier: Apache-2.0 */
/* `spaced image …`: images are built, listed and removed by a command of their own; a running
 * spaced takes them as they come. */
#pragma once

/* argv behind "image". Returns an exit status. */
int images_command(int argc, char **argv);
