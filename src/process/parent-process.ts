import process from "node:process";

/**
 * The environment variable by which a process asks the hub that it starts to end with it: its value is that process's
 * id. A toolmux that such a hub starts has another parent, and ignores it.
 */
export const PARENT_VARIABLE = "TOOLMUX_PARENT";

/** Interval for checking whether the parent process has changed, in ms. */
const CHECK_INTERVAL = 2000;

/**
 * Resolves when the parent process has ended. The end of stdin is not enough: after a client was killed, another
 * process may keep stdin open.
 */
export function untilParentGone(): Promise<void> {
  const parent = process.ppid;
  return new Promise((resolve) => {
    const timer = setInterval(() => {
      if (process.ppid !== parent) resolve();
    }, CHECK_INTERVAL);
    timer.unref();
  });
}
