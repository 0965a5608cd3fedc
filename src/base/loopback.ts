/** Matches the host names and addresses by which a machine reaches only itself. */
const LOOPBACK = /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])$/;

/** Whether only this machine can connect to the host. `hostname` is written as in URLs, without the port. */
export function isLoopback(hostname: string): boolean {
  return LOOPBACK.test(hostname);
}
