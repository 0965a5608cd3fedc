import process from "node:process";

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
