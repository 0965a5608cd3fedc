/** Names of this machine that no other machine can have. */
const LOOPBACK = /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])$/;

/** Whether only this machine can reach what listens there. `hostname` is as URLs spell it, without the port. */
export function isLoopback(hostname: string): boolean {
  return LOOPBACK.test(hostname);
}
