/**
 * How long the end of a server, of a hub and of this process may take. MCP clients close the hub's stdin, send SIGTERM
 * about 2 s later, and SIGKILL 2 s after that. EOF_GRACE, TERM_GRACE and KILL_GRACE together must stay below 2 s, so
 * that no server is left when SIGTERM arrives.
 */

/** Time from the end of the server's stdin to SIGTERM, in ms. */
export const EOF_GRACE = 1000;
let eofGrace = EOF_GRACE;

/** `EOF_GRACE`, or less if the process has to end sooner, in ms. */
export function currentEofGrace(): number {
  return eofGrace;
}

/** Shortens the grace period of all servers that are stopped from now on, so that the process can end within `ms`. */
export function endWithin(ms: number): void {
  eofGrace = Math.max(0, Math.min(EOF_GRACE, ms - TERM_GRACE - STOP_MARGIN));
}

/** Time that is kept for the end of the killed processes and of the hub, in ms. */
const STOP_MARGIN = 100;
/** Time from SIGTERM to SIGKILL, in ms. */
export const TERM_GRACE = 500;
/**
 * Time from SIGKILL until the process has left the process table, in ms. Only a process that is stuck in the kernel
 * takes longer.
 */
export const KILL_GRACE = 250;
/** Maximum time for stopping a hub, in ms: the sum of the three periods above, and a margin for slow systems. */
export const STOP_LIMIT = 3000;
/**
 * Maximum time, in ms, that this process waits at its exit, after it has sent SIGKILL to all its descendants, until
 * none of them is left in the process table.
 */
export const EXIT_GRACE = 900;
/**
 * How long a pipe is still read after the child that writes to it has exited, in ms. The end of the pipe is not
 * awaited, because a grandchild can keep the pipe open forever.
 */
export const PIPE_DRAIN_GRACE = 250;
